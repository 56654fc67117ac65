package ward

import (
	"sync"
	"sync/atomic"
	"time"

	"coworker/enforce"
	"coworker/enforce/guard"
)

// programsOfProcess are the programs of enforce/guard: one set serves all sessions of this process.
var programsOfProcess struct {
	sync.Mutex
	guard *guard.Guard
	users int
}

func takePrograms() (*guard.Guard, error) {
	p := &programsOfProcess
	p.Lock()
	defer p.Unlock()
	if p.guard == nil {
		g, err := guard.Load()
		if err != nil {
			return nil, err
		}
		p.guard = g
	}
	p.users++
	return p.guard, nil
}

func dropPrograms() error {
	p := &programsOfProcess
	p.Lock()
	defer p.Unlock()
	if p.users--; p.users > 0 {
		return nil
	}
	g := p.guard
	p.guard = nil
	return g.Close()
}

// files holds what enforce/guard keeps for the session.
type files struct {
	loaded   chan struct{} // closed when the programs are there, or not
	guard    *guard.Guard
	group    string
	pid      atomic.Int64 // of the first process that joined
	refusals chan<- enforce.Refusal
	fallen   chan<- error

	mu       sync.Mutex
	state    Programs
	session  *guard.Session
	hearing  sync.WaitGroup
	checking sync.WaitGroup
	stop     chan struct{}
	stopOnce sync.Once
	unheard  atomic.Int64
}

// openFiles loads the programs while the session starts otherwise.
func openFiles(r Request, group string, refusals chan<- enforce.Refusal, fallen chan<- error) *files {
	f := &files{loaded: make(chan struct{}), stop: make(chan struct{}), group: group, refusals: refusals, fallen: fallen}
	switch err := guard.Allowed(); {
	case !r.Guard:
		f.state.Why = "only sessions that ask for the level hardened load it"
	case group == "":
		f.state.Why = "no control group of version 2 can be made here"
	case err != nil:
		f.state.Why = err.Error()
	default:
		go f.load()
		return f
	}
	close(f.loaded)
	return f
}

func (f *files) load() {
	defer close(f.loaded)
	g, err := takePrograms()
	if err != nil {
		f.state.Why = err.Error()
		return
	}
	f.guard = g
}

func (f *files) joined(pid int) { f.pid.CompareAndSwap(0, int64(pid)) }

// tell arms the programs. Where that does not work the session has none, and State says why.
func (f *files) tell(trees []enforce.Tree) {
	<-f.loaded
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guard == nil || f.session != nil {
		return
	}
	s, err := f.guard.Add(f.group, int(f.pid.Load()))
	if err != nil {
		f.state.Why = err.Error()
		return
	}
	if err := s.Trees(trees); err != nil {
		f.state.Why = err.Error()
		if err := s.Close(); err != nil {
			f.state.Why += "; " + err.Error()
		}
		return
	}
	f.session = s
	f.state.Hooks, f.state.Missing = s.Hooks()
	f.hearing.Go(func() { f.hear(s) })
	f.checking.Go(func() { f.check(s) })
}

func (f *files) hear(s *guard.Session) {
	for {
		r, err := s.Next()
		if err != nil {
			return
		}
		select {
		case f.refusals <- r:
		default:
			f.unheard.Add(1)
		}
	}
}

func (f *files) check(s *guard.Session) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		if err := s.Check(); err != nil {
			select {
			case f.fallen <- &Fall{enforce.SourceBPFLSM, err}:
			default: // it had one already
			}
			return
		}
	}
}

// verify asks once.
func (f *files) verify() error {
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Check()
}

func (f *files) programs() Programs {
	<-f.loaded
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.state
	if f.session == nil && state.Why == "" {
		state.Why = "the trees were not told yet"
	}
	return state
}

func (f *files) counts() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.unheard.Load()
	if f.session != nil {
		n += f.session.Unheard()
	}
	return n
}

// rest ends the looks at the programs, the last of which is the caller's to make.
func (f *files) rest() {
	f.stopOnce.Do(func() { close(f.stop) })
	<-f.loaded
	f.checking.Wait()
}

// close takes the programs down; the group is gone by then.
func (f *files) close() error {
	f.rest()
	if f.guard == nil {
		return nil
	}
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	var err error
	if s != nil {
		err = s.Close()
		f.hearing.Wait()
	}
	if dropErr := dropPrograms(); err == nil {
		err = dropErr
	}
	f.guard = nil
	return err
}
