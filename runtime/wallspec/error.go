package wallspec

import "fmt"

// ExitConfiguration is the exit code of every error of this package: the request cannot be carried out as it
// stands, and nothing was run.
const ExitConfiguration = 123

// Error is a request that is refused. The hint is apart, because only a person at a terminal wants it.
type Error struct {
	Subject string // the flag, key or fact that the error is about: "--write", "workspace"
	Reason  string // what is wrong, with the value (never the value of a variable)
	Next    string // what to do instead; may be empty
	Err     error  // the cause, if there is one
}

func (e *Error) Error() string { return e.Subject + ": " + e.Reason }

// Hint says what to do next, or "".
func (e *Error) Hint() string { return e.Next }

// ExitCode implements the contract of the command line.
func (e *Error) ExitCode() int { return ExitConfiguration }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(subject, hint, format string, args ...any) *Error {
	return &Error{Subject: subject, Reason: fmt.Sprintf(format, args...), Next: hint}
}
