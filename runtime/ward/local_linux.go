package ward

import (
	"errors"
	"time"

	"coworker/enforce"
	"coworker/enforce/cgroup"
)

// Request says what a session needs.
type Request struct {
	Name     string // of the session; becomes the name of its group
	Limits   enforce.Limits
	Literals []string // addresses that rules consist of, as in enforce.Spec
	NoEgress bool     // leave out the programs of enforce/egress; for builds that show that the rest holds alone
	// Guard asks for the programs of enforce/guard too. Loading them takes the kernel some hundred milliseconds, so only
	// sessions that need them do.
	Guard bool
	Below string // a delegated group of v2 to make it in, see cgroup.NewBelow; empty: the usual place
}

// Local is a ward in this process, with what this process may do.
type Local struct {
	group    *cgroup.Group
	refusals chan enforce.Refusal
	fallen   chan error
	network  *network
	files    *files
}

// Open makes the group and sets its limits. Without the right to make one it returns a Local that bounds nothing and says
// why.
func Open(r Request) (*Local, error) {
	group, err := cgroup.NewBelow(r.Below, r.Name, r.Limits)
	if err != nil {
		return nil, err
	}
	l := &Local{group: group, refusals: make(chan enforce.Refusal, heard), fallen: make(chan error, 1)}
	l.network = openNetwork(r, group.Unified(), l.refusals, l.fallen)
	l.files = openFiles(r, group.Unified(), l.refusals, l.fallen)
	return l, nil
}

// heard is how many refusals wait for whoever reads them.
const heard = 1024

// Join implements Ward.
func (l *Local) Join(pid int) error {
	if err := l.group.Join(pid); err != nil {
		return err
	}
	l.files.joined(pid)
	return l.network.join(pid)
}

// Leave implements Ward.
func (l *Local) Leave(pid int) error { return l.group.Leave(pid) }

// Guard implements Ward.
func (l *Local) Guard(trees []enforce.Tree) error {
	l.files.tell(trees)
	return nil
}

// Lend tells where the session's control group is, for a backend that has another process put more into it.
func (l *Local) Lend() (string, error) { return l.group.Lend() }

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
	unheard, started := l.network.counts()
	return Counts{OOMKills: e.OOMKills, PidsMax: e.PidsMax, Unheard: unheard + l.files.counts(), Processes: started}
}

// State implements Ward.
func (l *Local) State() State { return State{Egress: l.network.programs(), Guard: l.files.programs()} }

// Check implements Ward.
func (l *Local) Check() error { return errors.Join(l.network.verify(), l.files.verify()) }

// Refusals implements Ward.
func (l *Local) Refusals() <-chan enforce.Refusal { return l.refusals }

// Fallen implements Ward.
func (l *Local) Fallen() <-chan error { return l.fallen }

// Remove implements Ward.
func (l *Local) Remove() error {
	l.network.rest() // the group is about to go, and its programs with it
	l.files.rest()
	err := errors.Join(l.group.Remove(), l.network.close(), l.files.close())
	close(l.refusals)
	close(l.fallen)
	return err
}
