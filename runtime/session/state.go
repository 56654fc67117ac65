package session

import (
	"fmt"
	"slices"
	"sync"
)

// State is where a session stands in its life.
type State string

// The states. A session moves only along the arrows of transitions.
const (
	Starting State = "starting" // keeper and cell are being made
	Proving  State = "proving"  // the battery runs
	Ready    State = "ready"    // commands may be run
	Closing  State = "closing"  // everything inside is being ended
	Closed   State = "closed"   // nothing is left
	Refused  State = "refused"  // a wall did not hold; nothing was run
)

var transitions = map[State][]State{
	Starting: {Proving, Closing},
	Proving:  {Ready, Refused, Closing},
	Ready:    {Closing},
	Refused:  {Closing},
	Closing:  {Closed},
}

// TransitionError is a move that the life of a session does not have.
type TransitionError struct{ From, To State }

func (e *TransitionError) Error() string {
	return fmt.Sprintf("session cannot go from %s to %s", e.From, e.To)
}

// life holds the state of one session.
type life struct {
	mu    sync.Mutex
	state State
}

func (l *life) move(to State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(transitions[l.state], to) {
		return &TransitionError{From: l.state, To: to}
	}
	l.state = to
	return nil
}

func (l *life) current() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}
