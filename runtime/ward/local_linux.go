package ward

import (
	"time"

	"coworker/enforce"
	"coworker/enforce/cgroup"
)

// Request says what a session needs.
type Request struct {
	Name   string // of the session; becomes the name of its group
	Limits enforce.Limits
	Below  string // a delegated group of v2 to make it in, see cgroup.NewBelow; empty: the usual place
}

// Local is a ward in this process, with what this process may do.
type Local struct {
	group    *cgroup.Group
	refusals chan enforce.Refusal
	fallen   chan error
}

// Open makes the group and sets its limits. Without the right to make one it returns a Local that bounds nothing and says
// why.
func Open(r Request) (*Local, error) {
	group, err := cgroup.NewBelow(r.Below, r.Name, r.Limits)
	if err != nil {
		return nil, err
	}
	return &Local{group: group, refusals: make(chan enforce.Refusal), fallen: make(chan error, 1)}, nil
}

// Join implements Ward.
func (l *Local) Join(pid int) error { return l.group.Join(pid) }

// Leave implements Ward.
func (l *Local) Leave(pid int) error { return l.group.Leave(pid) }

// Guard implements Ward.
func (l *Local) Guard([]enforce.Tree) error { return nil }

// Limits implements Ward.
func (l *Local) Limits() []enforce.Limit { return l.group.Limits() }

// CanFreeze implements Ward.
func (l *Local) CanFreeze() bool { return l.group.CanFreeze() }

// Freeze implements Ward.
func (l *Local) Freeze(limit time.Duration) error { return l.group.Freeze(limit) }

// Thaw implements Ward.
func (l *Local) Thaw() error { return l.group.Thaw() }

// Kill implements Ward.
func (l *Local) Kill() error { return l.group.Kill() }

// Counts implements Ward.
func (l *Local) Counts() Counts {
	e := l.group.Events()
	return Counts{OOMKills: e.OOMKills, PidsMax: e.PidsMax}
}

// State implements Ward.
func (l *Local) State() State { return State{} }

// Refusals implements Ward.
func (l *Local) Refusals() <-chan enforce.Refusal { return l.refusals }

// Fallen implements Ward.
func (l *Local) Fallen() <-chan error { return l.fallen }

// Remove implements Ward.
func (l *Local) Remove() error {
	err := l.group.Remove()
	close(l.refusals)
	close(l.fallen)
	return err
}
