package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"

	"coworker/enforce"
	"coworker/enforce/cgroup"
	"coworker/enforce/landlock"
	"coworker/runtime/session"
)

func sandboxStatus(ctx context.Context, e *environment, asJSON bool) error {
	m, err := readMachine(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		err = e.printJSON(m)
	} else {
		m.print(e.out, styleFor(e.out, e.getenv))
	}
	if err == nil && m.Level == enforce.Direct {
		return &wallsError{err: errNoWalls, hint: m.Backends[0].Remedy}
	}
	return err
}

// readMachine finds out what this machine offers. Backends and control groups are tried, not guessed from settings.
func readMachine(ctx context.Context) (*machineStatus, error) {
	m := &machineStatus{Kernel: kernelRelease(), Privileged: os.Geteuid() == 0}
	var err error
	if m.LandlockABI, err = landlock.ABI(); err != nil {
		m.LandlockCause = err.Error()
	}
	m.Cgroup = cgroupVersion()
	best := enforce.BackendName("")
	for _, b := range session.Backends() {
		av := b.Available(ctx)
		av.Backend = b.Name()
		m.Backends = append(m.Backends, av)
		if av.OK && best == "" {
			best = b.Name()
		}
		if b.Name() == enforce.Native {
			m.UserNamespaces = av.OK
		}
	}
	inForce := false
	m.Helper = tryHelper()
	switch {
	case m.Privileged || !m.Helper.Answers:
		if m.Limits, err = tryGroup(); err != nil {
			return nil, err
		}
	default:
		m.Limits = m.Helper.Trial.Limits
	}
	if !m.Privileged && !m.Helper.Answers {
		m.Helper.Next = "coworker sandbox setup --machine"
	}
	for _, l := range m.Limits {
		inForce = inForce || l.Active
	}
	m.Walls = []wallOffer{}
	switch best {
	case enforce.Native, enforce.Container:
		m.Level = enforce.Enforced
	case enforce.Bare:
		m.Level = enforce.Partial
	default:
		return m, nil
	}
	m.Walls = offers(best, m.LandlockABI, inForce)
	return m, nil
}

// tryGroup makes a control group as a session would, and removes it.
func tryGroup() ([]enforce.Limit, error) {
	var random [6]byte
	rand.Read(random[:])
	group, err := cgroup.New("status-"+hex.EncodeToString(random[:]), enforce.Limits{Processes: 64, Memory: 256 << 20, CPUs: 1})
	if err != nil {
		return []enforce.Limit{{Name: "processes, memory, cpus", Detail: err.Error()}}, nil
	}
	limits := group.Limits()
	if limits == nil {
		limits = []enforce.Limit{}
	}
	return limits, group.Remove()
}

// cgroupVersion tells how the control groups of this machine are mounted (systemd's three layouts).
func cgroupVersion() string {
	for _, layout := range []struct{ file, name string }{
		{"/sys/fs/cgroup/cgroup.controllers", "v2"}, {"/sys/fs/cgroup/unified/cgroup.procs", "hybrid"}, {"/sys/fs/cgroup/memory", "v1"},
	} {
		if _, err := os.Stat(layout.file); err == nil {
			return layout.name
		}
	}
	return "none"
}

func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}
