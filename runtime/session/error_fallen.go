package session

// FallenError is a session that ended because one of its walls was taken down while it lived.
type FallenError struct{ Err error }

func (e *FallenError) Error() string { return "a wall fell: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *FallenError) Unwrap() error { return e.Err }

// Hint says what to do next.
func (e *FallenError) Hint() string {
	return "only root can take a program off a control group: find out who did, then run the command again"
}
