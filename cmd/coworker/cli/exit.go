package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"coworker/platform/audit"
	"coworker/platform/config"
	"coworker/platform/paths"
	"coworker/platform/secret/store"
	"coworker/platform/sqlite"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

// The exit codes of the contract. Those of a command that ran are its own.
const (
	exitFailure       = 1 // a check said no: verify found a change, an item is not there
	exitWalls         = 120
	exitDenied        = 121
	exitNobodyToAsk   = 122
	exitConfiguration = 123
	exitTimeout       = 124
	exitInternal      = 125
	exitKilled        = 128 + 9 // as shells say it of SIGKILL
)

// statusError is a command that ran and ended with a status of its own: nothing is left to say.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("the command ended with status %d", e.code) }

// startError is a command that did not start, in a session that did.
type startError struct {
	name, reason string
	code         int // 126 or 127
}

func (e *startError) Error() string { return fmt.Sprintf("run %q: %s", e.name, e.reason) }

func (e *startError) Hint() string {
	if e.code == 127 {
		return "check the spelling; programs outside PATH and the workspace are made visible with --read DIR"
	}
	return "the file must be executable (chmod +x) and of this machine's kind"
}

// timeoutError is a command that --timeout ended.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("the command was ended after %v (--timeout)", e.limit)
}

// limitError is a session that was ended, with the command, because a limit was reached.
type limitError struct {
	err  error
	hint string
}

func (e *limitError) Error() string { return "the session was ended: " + e.err.Error() }
func (e *limitError) Hint() string  { return e.hint }
func (e *limitError) Unwrap() error { return e.err }

// usageError is a command line that cannot be carried out as it stands.
type usageError struct{ text, hint string }

func (e *usageError) Error() string { return e.text }
func (e *usageError) Hint() string  { return e.hint }

// deniedError is something that the machine's policy does not allow.
type deniedError struct{ text, hint string }

func (e *deniedError) Error() string { return e.text }
func (e *deniedError) Hint() string  { return e.hint }

// approvalError is a decision that only a person could make, with nobody there.
type approvalError struct{ text, hint string }

func (e *approvalError) Error() string { return e.text }
func (e *approvalError) Hint() string  { return e.hint }

// wallsError is a session that was not started, for a reason that session has no type for.
type wallsError struct {
	err  error
	hint string
}

func (e *wallsError) Error() string { return e.err.Error() }
func (e *wallsError) Hint() string  { return e.hint }
func (e *wallsError) Unwrap() error { return e.err }

// failedError is a check whose answer is no.
type failedError struct{ text, hint string }

func (e *failedError) Error() string { return e.text }
func (e *failedError) Hint() string  { return e.hint }

// ExitCode is the one place where errors become exit codes.
func ExitCode(err error) int {
	var (
		status   *statusError
		start    *startError
		timeout  *timeoutError
		limit    *limitError
		scan     *session.ScanError
		failed   *failedError
		denied   *deniedError
		usage    *usageError
		request  *wallspec.Error
		settings *config.Error
		refused  *session.RefusedError
		walls    *wallsError
		approval *approvalError
		egress   *session.EgressError
		fallen   *session.FallenError
		secrets  *store.Error
	)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, audit.ErrNotRecorded): // first: a session that could not be recorded is refused too
		return exitInternal
	case errors.As(err, &status):
		return status.code
	case errors.As(err, &start):
		return start.code
	case errors.As(err, &timeout):
		return exitTimeout
	case errors.As(err, &limit):
		return exitKilled
	case errors.As(err, &refused), errors.As(err, &walls), errors.As(err, &egress), errors.As(err, &fallen):
		return exitWalls
	case errors.As(err, &approval):
		return exitNobodyToAsk
	case errors.As(err, &denied):
		return exitDenied
	case errors.As(err, &usage), errors.As(err, &request), errors.As(err, &settings), errors.As(err, &scan),
		errors.As(err, &secrets), errors.Is(err, config.ErrUnsafe), errors.Is(err, paths.ErrUnsafe):
		return exitConfiguration
	case errors.As(err, &failed), errors.Is(err, audit.ErrTampered), errors.Is(err, audit.ErrNoRow), errors.Is(err, audit.ErrProof):
		return exitFailure
	}
	return exitInternal
}

// Report tells a person why a command line was not carried out, and returns the exit code.
func Report(w io.Writer, err error) int {
	code := ExitCode(err)
	if _, own := err.(*statusError); err == nil || own {
		return code
	}
	fmt.Fprintf(w, "error: %s\n", indented(err.Error()))
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", indented(hint))
	}
	return code
}

const (
	hintFull     = "free some space on the disk that holds the state folder; without a record nothing is run"
	hintReadOnly = "the state folder must be writable, or COWORKER_HOME must name a folder that is"
)

// hintFor is the next step: the error's own, or what is known about its cause.
func hintFor(err error) string {
	var own interface{ Hint() string }
	var refused *session.RefusedError
	if errors.As(err, &refused) && refused.Remedy != "" {
		return refused.Remedy // what this machine lacks comes before what the errno could mean elsewhere
	}
	for _, known := range []struct {
		cause error
		hint  string
	}{
		{sqlite.ErrFull, hintFull},
		{syscall.ENOSPC, hintFull},
		{sqlite.ErrCorrupt, "move coworker.db out of the state folder (keep it: coworker cannot repair it) and try again"},
		{sqlite.ErrBusy, "another coworker holds the record; try again"},
		{sqlite.ErrReadOnly, hintReadOnly},
		{syscall.EROFS, hintReadOnly},
		{sqlite.ErrNewer, "use the newer coworker"},
		{audit.ErrKey, "the key audit.key in the state folder belongs to the record; restore both together"},
		{audit.ErrTampered, "coworker audit verify names the first bad row; do not trust the record from there on"},
		{config.ErrUnsafe, "the file must be a regular file that only you can write: no symbolic link, no other name"},
		{paths.ErrUnsafe, "the folder must be yours and closed to others: chmod 700, no symbolic link; or set COWORKER_HOME"},
	} {
		if errors.Is(err, known.cause) {
			return known.hint
		}
	}
	if errors.As(err, &own) {
		return own.Hint()
	}
	if errors.Is(err, fs.ErrPermission) {
		return "check the owner and the mode of that path"
	}
	return ""
}

// indented makes text from anywhere safe for a terminal: control characters become visible, and further lines are
// set in, so that no text can pass for a line of ours.
func indented(s string) string {
	return strings.ReplaceAll(visibleLines(s), "\n", "\n       ")
}
