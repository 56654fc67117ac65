package session

import (
	"errors"
	"slices"
	"testing"
)

func TestTransitions(t *testing.T) {
	all := []State{Starting, Proving, Ready, Closing, Closed, Refused}
	allowed := map[State][]State{
		Starting: {Proving, Closing}, Proving: {Ready, Refused, Closing}, Ready: {Closing}, Refused: {Closing}, Closing: {Closed},
	}
	for _, from := range all {
		for _, to := range all {
			l := life{state: from}
			err := l.move(to)
			if slices.Contains(allowed[from], to) {
				if err != nil || l.current() != to {
					t.Errorf("%s to %s: %v, now %s", from, to, err, l.current())
				}
				continue
			}
			var refused *TransitionError
			if !errors.As(err, &refused) || refused.From != from || refused.To != to || l.current() != from {
				t.Errorf("%s to %s: %v, now %s", from, to, err, l.current())
			}
		}
	}
}
