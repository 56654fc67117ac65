package session

import (
	"slices"

	"coworker/enforce"
	"coworker/runtime/ward"
	"coworker/runtime/wire"
)

// landlockScopes is the ABI from which Landlock keeps signals and abstract sockets apart.
const landlockScopes = 6

// mechanismsOf says which mechanisms keep each wall in a session, from what was really put up.
func mechanismsOf(b enforce.BackendName, p *wire.Proved, limits []enforce.Limit, w ward.State) map[enforce.Wall][]enforce.Mechanism {
	m := map[enforce.Wall][]enforce.Mechanism{
		enforce.Kernel: {enforce.Seccomp},
		enforce.Priv:   {enforce.NoNewPrivs},
		enforce.Env:    {enforce.Supervisor},
	}
	add := func(w enforce.Wall, list ...enforce.Mechanism) { m[w] = append(m[w], list...) }
	if b.Namespaces() {
		add(enforce.FSRead, enforce.MountNS)
		add(enforce.FSWrite, enforce.MountNS)
		add(enforce.FSProtect, enforce.Pins, enforce.Watch)
		add(enforce.FSHide, enforce.Masks)
		add(enforce.NetEgress, enforce.NetNS)
		add(enforce.NetLocal, enforce.NetNS, enforce.MountNS)
		add(enforce.Proc, enforce.PidNS)
		add(enforce.Priv, enforce.UserNS)
		add(enforce.Life, enforce.PidNS, enforce.Pdeathsig)
		addEgress(add, w.Egress)
	} else {
		addEgress(add, w.Egress) // the first one here: it stops what is not TCP, too
		add(enforce.FSProtect, enforce.Watch)
		// No mechanism for life: a child that left its parents outlives the cell, and a supervisor
		// that was killed cannot end it.
		if p.LandlockABI >= 4 {
			add(enforce.NetEgress, enforce.LandlockTCP)
			add(enforce.NetLocal, enforce.LandlockTCP)
		}
		add(enforce.NetEgress, enforce.Seccomp)
	}
	if b == enforce.Container {
		add(enforce.Kernel, enforce.DeviceRules)
	}
	if p.LandlockABI > 0 {
		add(enforce.FSRead, enforce.Landlock)
		add(enforce.FSWrite, enforce.Landlock)
	}
	if p.LandlockABI >= landlockScopes {
		add(enforce.Proc, enforce.LandlockScope)
		add(enforce.NetLocal, enforce.LandlockScope)
	}
	add(enforce.NetLocal, enforce.Seccomp)
	add(enforce.Proc, enforce.Seccomp)
	add(enforce.Priv, enforce.Seccomp)
	addGuard(add, w.Guard)
	seen := map[enforce.Mechanism]bool{}
	for _, l := range limits {
		if l.Active && l.Mechanism != "" && !seen[l.Mechanism] {
			seen[l.Mechanism] = true
			add(enforce.Res, l.Mechanism)
		}
	}
	if seen[enforce.Cgroup] && b.Namespaces() {
		add(enforce.Life, enforce.Cgroup)
	}
	return m
}

// addEgress adds the kernel programs of the control group to the walls that they keep.
func addEgress(add func(enforce.Wall, ...enforce.Mechanism), p ward.Programs) {
	if !p.On() {
		return
	}
	add(enforce.NetEgress, enforce.EBPF)
	if slices.Contains(p.Hooks, "connect_unix") && slices.Contains(p.Hooks, "sendmsg_unix") {
		add(enforce.NetLocal, enforce.EBPF)
	}
}

// mergeLimits puts the limits that the cell set and those of the control group into one list: one
// entry for each name, in force if either is.
func mergeLimits(want enforce.Limits, lists ...[]enforce.Limit) []enforce.Limit {
	var order []string
	byName := map[string]enforce.Limit{}
	for _, list := range lists {
		for _, l := range list {
			have, ok := byName[l.Name]
			if !ok {
				order = append(order, l.Name)
			}
			if !ok || !have.Active && l.Active {
				byName[l.Name] = l
			}
		}
	}
	named := map[string]bool{}
	for _, n := range want.Named {
		named[n] = true
	}
	out := make([]enforce.Limit, 0, len(order))
	for _, n := range order {
		l := byName[n]
		l.Named = named[n]
		out = append(out, l)
		delete(named, n)
	}
	for _, n := range want.Named {
		if named[n] {
			out = append(out, enforce.Limit{Name: n, Named: true, Detail: "no mechanism for it in this backend"})
		}
	}
	return out
}
