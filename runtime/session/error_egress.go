package session

// EgressError is a session that ended because its proxy did.
type EgressError struct{ Err error }

func (e *EgressError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *EgressError) Unwrap() error { return e.Err }

// Hint says what to do next.
func (e *EgressError) Hint() string {
	return "nothing leaves without the proxy, so the session was ended; coworker audit list shows it. Run the command again"
}
