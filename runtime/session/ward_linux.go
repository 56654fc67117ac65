package session

import (
	"fmt"
	"os"
	"path"
	"strings"

	"coworker/enforce"
	"coworker/runtime/wallsd"
	"coworker/runtime/ward"
)

// faultEBPF is the name by which a build for tests leaves out the programs on the control group, see enforcetest.
const faultEBPF = enforce.Wall(enforce.EBPF)

// wardChecks look from outside at what holds the cell from outside: that each program is where it was put, and that the
// cell is in the group that they are on. What the kernel says about both cannot be changed from inside.
func (s *Session) wardChecks() []enforce.Probe {
	o := &outside{pid: s.cell.Pid}
	programs := s.ward.State().Egress
	if !programs.On() {
		return nil
	}
	detail := strings.Join(programs.Hooks, " ")
	err := s.ward.Check()
	if err != nil {
		detail = err.Error()
	}
	o.judge("net.egress/outside-ebpf-links", enforce.NetEgress, err == nil, detail)
	const name = "net.egress/outside-ebpf-group"
	group, err := unifiedGroup(s.cell.Pid)
	if err != nil {
		o.add(name, enforce.NetEgress, enforce.Inconclusive, err.Error())
		return o.probes
	}
	own := s.id
	if s.ward.State().Helper {
		own = wallsd.GroupName(os.Geteuid(), s.id)
	}
	o.judge(name, enforce.NetEgress, path.Base(group) == own, "the cell is in "+group)
	return o.probes
}

// unifiedGroup is the control group of a process in the hierarchy of version 2 (cgroups(7)).
func unifiedGroup(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(group, "\n"), nil
		}
	}
	return "", fmt.Errorf("process %d is in no control group of version 2", pid)
}

// wardNotes say what this machine lacks for the programs that could hold the session, where it is no matter of rights.
func wardNotes(s ward.State) []string {
	var notes []string
	if s.Egress.Why != "" && os.Geteuid() == 0 {
		notes = append(notes, "no kernel programs on the network: "+s.Egress.Why)
	}
	for _, missing := range s.Egress.Missing {
		notes = append(notes, "kernel programs on the network: "+missing)
	}
	return notes
}
