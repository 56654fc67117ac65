package store

import (
	"errors"
	"fmt"
)

// The answers that a caller can act on.
var (
	ErrNoEntry = errors.New("there is no secret")
	ErrExists  = errors.New("there is a secret of that name")
)

// Error is a store that cannot be used as it is. Neither text holds content of the store.
type Error struct {
	File   string // absolute; empty if it is not about a file
	Reason error
	Advice string
}

func (e *Error) Error() string {
	if e.File == "" {
		return e.Reason.Error()
	}
	return fmt.Sprintf("%s: %v", e.File, e.Reason)
}

// Hint is what a person can do.
func (e *Error) Hint() string  { return e.Advice }
func (e *Error) Unwrap() error { return e.Reason }
