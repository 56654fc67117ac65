package cell

import (
	"fmt"
	"slices"

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
	// Before, it counts all the user has on the host: as a default that is a bound with room, but a
	// number that somebody asked for would already be used up outside.
	var out []enforce.Limit
	if b.Backend.Namespaces() && b.Spec.Identity.UID != 0 {
		if slices.Contains(l.Named, "processes") && kernelBefore(5, 14) {
			out = append(out, enforce.Limit{Name: "processes", Value: l.Processes,
				Detail: "before Linux 5.14 RLIMIT_NPROC counts all processes of the user, and no control group can be used"})
		} else {
			limits = append(limits, rlimit{"processes", unix.RLIMIT_NPROC, l.Processes})
		}
	}
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
	if b.Backend.Namespaces() {
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

// kernelBefore compares the running kernel; one that does not say what it is counts as old.
func kernelBefore(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return true
	}
	return releaseBefore(unix.ByteSliceToString(u.Release[:]), major, minor)
}

func releaseBefore(release string, major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 || err != nil {
		return true
	}
	return a < major || a == major && b < minor
}
