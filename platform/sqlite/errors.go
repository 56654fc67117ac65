package sqlite

import (
	"errors"
	"fmt"
	"syscall"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// Causes a caller acts on. Test with errors.Is; the driver's own error stays
// in the chain.
var (
	ErrFull     = errors.New("no space left for the database")
	ErrCorrupt  = errors.New("the database is damaged or is no database")
	ErrBusy     = errors.New("the database is locked by another process")
	ErrReadOnly = errors.New("the database cannot be written")
	ErrIO       = errors.New("the disk refused an operation on the database")
	ErrNewer    = errors.New("the database was written by a newer version of coworker")
	ErrUnsafe   = errors.New("the database file is not private to this user")
)

// Error says which operation failed on which file.
type Error struct {
	Op   string
	Path string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("database %s: %s: %v", e.Op, e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// classify puts the matching cause in front of an error of SQLite or of the
// operating system, and returns any other error unchanged.
func classify(err error) error {
	if cause := causeOf(err); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func causeOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return ErrFull
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES):
		return ErrReadOnly
	}
	var e *driver.Error
	if !errors.As(err, &e) {
		return nil
	}
	// Extended codes carry the primary one in the low byte
	// (https://www.sqlite.org/rescode.html).
	if e.Code() == lib.SQLITE_IOERR_SHMSIZE {
		// Growing the shared index is the first write of a connection, so
		// a full disk shows here before any page is written.
		return ErrFull
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return ErrFull
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return ErrCorrupt
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return ErrBusy
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return ErrReadOnly
	case lib.SQLITE_IOERR:
		return ErrIO
	}
	return nil
}
