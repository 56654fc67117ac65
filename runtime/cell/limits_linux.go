package cell

import (
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
	"coworker/runtime/wire"
)

// rlimit is one limit that the cell sets on itself before it starts anything; children inherit
// it and, without CAP_SYS_RESOURCE, cannot raise it.
type rlimit struct {
	name     string
	resource int
	value    int64
}

// setLimits sets the resource limits of the Spec and returns what is in force. A hard limit that
// the host set lower stays lower.
func setLimits(b wire.Begin) ([]enforce.Limit, error) {
	l := b.Spec.Limits
	if enforcetest.Off(b.Spec, enforce.Res) {
		return nil, nil
	}
	limits := []rlimit{
		{"open_files", unix.RLIMIT_NOFILE, l.OpenFiles},
		{"file_size", unix.RLIMIT_FSIZE, l.FileSize},
		{"core", unix.RLIMIT_CORE, 0},
	}
	// RLIMIT_NPROC counts the processes of one user in one user namespace since Linux 5.14, so in
	// a namespace of its own it bounds the session. It does not bind uid 0; the cgroup does there.
	if b.Backend == enforce.Native && b.Spec.Identity.UID != 0 {
		limits = append(limits, rlimit{"processes", unix.RLIMIT_NPROC, l.Processes})
	}
	var out []enforce.Limit
	for _, r := range limits {
		if r.value <= 0 && r.name != "core" {
			continue
		}
		got, err := lower(r)
		if err != nil {
			return nil, fmt.Errorf("limit %s to %d: %w", r.name, r.value, err)
		}
		out = append(out, enforce.Limit{Name: r.name, Value: got, Active: true, Mechanism: enforce.Rlimit})
	}
	if b.Backend == enforce.Native {
		out = append(out, enforce.Limit{Name: "tmp", Value: l.Tmp, Active: true, Mechanism: enforce.TmpfsSize})
	}
	return out, nil
}

// lower sets the soft and the hard limit, never above the hard limit that is there.
func lower(r rlimit) (int64, error) {
	var have unix.Rlimit
	if err := unix.Getrlimit(r.resource, &have); err != nil {
		return 0, err
	}
	value := min(uint64(r.value), have.Max)
	return int64(value), unix.Setrlimit(r.resource, &unix.Rlimit{Cur: value, Max: value})
}
