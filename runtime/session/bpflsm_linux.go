package session

import (
	"path"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/runtime/ward"
)

// faultGuard is the name by which a build for tests leaves out the programs on the security hooks, see enforcetest.
const faultGuard = enforce.Wall(enforce.BPFLSM)

// tellTrees arms the programs on the kernel's security hooks, once the scan is done and the cell is in its group.
func (s *Session) tellTrees() error {
	spec := s.options.Spec
	trees := slices.Clone(spec.Trees)
	for i := range trees {
		t := &trees[i]
		t.Sealed = s.options.MinLevel >= enforce.Hardened
		for _, abs := range s.options.Lifted {
			if rel, ok := relativeTo(t.Path, abs); ok {
				t.Lifted = append(t.Lifted, rel)
			}
		}
		if t.Stage != "" {
			trees = append(trees, enforce.Tree{Path: t.Stage, Writable: true, Own: true})
		}
	}
	// The private home may lie in a tree: what is in it is nobody's project.
	for _, own := range []string{spec.HomeStore, spec.CacheStore} {
		if own != "" {
			trees = append(trees, enforce.Tree{Path: path.Clean(own), Writable: true, Own: true})
		}
	}
	return s.ward.Guard(trees)
}

// addGuard adds the programs on the security hooks to the walls that they keep.
func addGuard(add func(enforce.Wall, ...enforce.Mechanism), p ward.Programs) {
	if !p.On() {
		return
	}
	add(enforce.FSProtect, enforce.BPFLSM)
	add(enforce.FSHide, enforce.BPFLSM)
	if slices.Contains(p.Hooks, "unix_stream_connect") && slices.Contains(p.Hooks, "unix_may_send") {
		add(enforce.NetLocal, enforce.BPFLSM)
	}
}

// guardChecks look from outside whether the programs are on their hooks.
func (s *Session) guardChecks() []enforce.Probe {
	programs := s.ward.State().Guard
	if !programs.On() {
		return nil
	}
	o := &outside{pid: s.cell.Pid}
	detail := strings.Join(programs.Hooks, " ")
	err := s.ward.Check()
	if err != nil {
		detail = err.Error()
	}
	o.judge("fs.protect/outside-bpf-lsm", enforce.FSProtect, err == nil, detail)
	return o.probes
}
