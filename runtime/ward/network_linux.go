package ward

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"coworker/enforce"
	"coworker/enforce/egress"
)

// network holds the programs of enforce/egress that are on the session's group.
type network struct {
	attached chan struct{} // closed when programs were attached, or not
	state    Programs      // valid then, and what is below
	held     *egress.Programs
	first    sync.Once // the keeper's Join
	stop     chan struct{}
	stopOnce sync.Once
	checking sync.WaitGroup
	hearing  sync.WaitGroup
	unheard  atomic.Int64
	started  atomic.Int64
}

// openNetwork attaches the programs while the session starts otherwise: it takes some milliseconds.
func openNetwork(r Request, group string, refusals chan<- enforce.Refusal, fallen chan<- error) *network {
	n := &network{attached: make(chan struct{}), stop: make(chan struct{})}
	switch err := egress.Allowed(); {
	case r.NoEgress:
		n.state.Why = "left out to show that the rest holds alone"
	case group == "":
		n.state.Why = "no control group of version 2 can be made here"
	case err != nil:
		n.state.Why = err.Error()
	default:
		go n.attach(group, r.Literals, refusals, fallen)
		return n
	}
	close(n.attached)
	return n
}

func (n *network) attach(group string, literals []string, refusals chan<- enforce.Refusal, fallen chan<- error) {
	defer close(n.attached)
	addrs := make([]netip.Addr, 0, len(literals))
	for _, text := range literals {
		a, err := netip.ParseAddr(text)
		if err != nil {
			n.state.Why = fmt.Sprintf("a rule has the address %q: %v", text, err)
			return
		}
		addrs = append(addrs, a)
	}
	var err error
	if n.held, err = egress.Attach(group, addrs); err != nil {
		n.state.Why = err.Error()
		return
	}
	n.state.Hooks, n.state.Missing = n.held.Hooks()
	n.hearing.Go(func() { n.hear(refusals) })
	n.checking.Go(func() { n.check(fallen) })
}

// join waits for the programs and tells them the namespaces of the first process.
func (n *network) join(pid int) (err error) {
	<-n.attached
	n.first.Do(func() {
		if n.held == nil {
			return
		}
		err = n.held.Permit(pid)
		if errors.Is(err, egress.ErrUnsupported) {
			n.state = Programs{Why: err.Error()}
			err = n.close()
		}
	})
	return err
}

// checkEvery is how long a wall may be down before the session ends.
const checkEvery = time.Second

// check asks the kernel whether the programs are still there, until rest.
func (n *network) check(fallen chan<- error) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.stop:
			n.look(fallen) // a last time: the session may have been shorter than a tick
			return
		case <-tick.C:
		}
		if n.look(fallen) {
			return
		}
	}
}

// look says whether a program is gone.
func (n *network) look(fallen chan<- error) bool {
	err := n.held.Check()
	if err != nil {
		select {
		case fallen <- err:
		default: // it had one already
		}
	}
	return err != nil
}

// verify asks once.
func (n *network) verify() error {
	<-n.attached
	if !n.state.On() {
		return nil
	}
	return n.held.Check()
}

// hear passes on what the programs tell, until they are closed.
func (n *network) hear(refusals chan<- enforce.Refusal) {
	for {
		r, err := n.held.Next()
		if err != nil {
			return
		}
		if r.Hook == enforce.HookExec {
			n.started.Add(1)
		}
		select {
		case refusals <- r:
		default:
			n.unheard.Add(1)
		}
	}
}

// programs tells what is attached, once that is decided.
func (n *network) programs() Programs {
	<-n.attached
	return n.state
}

func (n *network) counts() (unheard, started int64) {
	<-n.attached
	unheard = n.unheard.Load()
	if n.held != nil {
		unheard += n.held.Unheard()
	}
	return unheard, n.started.Load()
}

// rest ends the looks at the programs with a last one.
func (n *network) rest() {
	n.stopOnce.Do(func() { close(n.stop) })
	<-n.attached
	n.checking.Wait()
}

// close takes the programs down.
func (n *network) close() error {
	n.rest()
	if n.held == nil {
		return nil
	}
	err := n.held.Close()
	n.hearing.Wait()
	return err
}
