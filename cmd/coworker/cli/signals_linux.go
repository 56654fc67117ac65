package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts turns signals to coworker into the end of the command: the first asks it to end, the second ends the
// session. Nothing else may end coworker meanwhile, or it could not clean up.
type interrupts struct {
	ctx    context.Context
	cancel context.CancelFunc
	in     chan os.Signal
	pipe   chan os.Signal
	done   sync.WaitGroup

	mu     sync.Mutex
	first  syscall.Signal
	count  int
	second func()
}

func followSignals(parent context.Context) *interrupts {
	s := &interrupts{in: make(chan os.Signal, 4), pipe: make(chan os.Signal, 1)}
	s.ctx, s.cancel = context.WithCancel(parent)
	signal.Notify(s.in, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// A closed stdout (| head) ends the command through its own pipe. Caught and not ignored: children inherit
	// what is ignored.
	signal.Notify(s.pipe, syscall.SIGPIPE)
	s.done.Go(func() {
		for sig := range s.in {
			s.take(sig.(syscall.Signal))
		}
	})
	return s
}

func (s *interrupts) take(sig syscall.Signal) {
	s.mu.Lock()
	s.count++
	if s.count == 1 {
		s.first = sig
	}
	count, second := s.count, s.second
	s.mu.Unlock()
	if count == 1 {
		s.cancel()
	} else if count == 2 && second != nil {
		second()
	}
}

// onSecond sets what the second signal does. If it came already, it does so now.
func (s *interrupts) onSecond(f func()) {
	s.mu.Lock()
	s.second = f
	late := s.count > 1
	s.mu.Unlock()
	if late {
		f()
	}
}

func (s *interrupts) twice() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count > 1
}

// code is 128+n for the first signal that came, 0 if none did.
func (s *interrupts) code() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return 0
	}
	return 128 + int(s.first)
}

// end gives the signals back their usual meaning.
func (s *interrupts) end() {
	signal.Stop(s.in)
	signal.Stop(s.pipe)
	close(s.in)
	s.done.Wait()
	s.cancel()
}
