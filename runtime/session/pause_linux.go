package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// terminals are those that commands of a session use now.
type terminals struct {
	mu   sync.Mutex
	open []*Terminal
}

// enter adds one, and returns what takes it out again.
func (t *terminals) enter(one *Terminal) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, one)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.open = slices.DeleteFunc(t.open, func(o *Terminal) bool { return o == one })
	}
}

// last is the one that a person looks at; nil if there is none.
func (t *terminals) last() *Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		return nil
	}
	return t.open[len(t.open)-1]
}

// WhilePaused runs f while nothing inside runs, so that nothing inside can write between a question and its answer, and
// while no command reads the caller's input, so that the answer reaches the one who asked. f must end by itself.
func (s *Session) WhilePaused(f func()) error {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if state := s.current(); state != Ready || s.guard.dead {
		return fmt.Errorf("pause a session that is %s", state)
	}
	thaw, err := s.freeze(frozenLimit)
	if err != nil {
		return err
	}
	s.input.Lock()
	defer s.input.Unlock()
	if t := s.terminals.last(); t != nil {
		err = t.lineMode(f)
	} else {
		f()
	}
	return errors.Join(err, thaw())
}
