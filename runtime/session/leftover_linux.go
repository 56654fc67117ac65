package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"coworker/platform/filelock"
)

// ownFolder is a folder of one session in a folder that all sessions share. The supervisor holds a
// lock on it (flock(2)), which the kernel drops however the supervisor ends; so what a killed one
// left behind can be told from what is in use, also when process ids are used again.
type ownFolder struct {
	path  string
	owner *os.File
}

// gateLimit bounds the wait for another supervisor that looks for leftovers at this moment.
const gateLimit = 2 * time.Second

// newOwnFolder makes parent/name, after removing what nobody holds any more. parent belongs to
// coworker: nobody else may write to it.
func newOwnFolder(parent, name string) (_ *ownFolder, err error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	// Between making a folder and locking it, it looks like a leftover. The lock of the parent keeps
	// others from looking then.
	gate, err := os.Open(parent)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	if filelock.Within(gate, gateLimit) {
		if err := removeLeftovers(parent); err != nil {
			return nil, err
		}
	}
	o := &ownFolder{path: filepath.Join(parent, name)}
	if err := os.Mkdir(o.path, 0o700); err != nil {
		return nil, err
	}
	if o.owner, err = os.Open(o.path); err == nil && !filelock.Within(o.owner, gateLimit) {
		err = fmt.Errorf("another process holds the lock of %q", o.path)
	}
	if err != nil {
		return nil, errors.Join(err, o.remove())
	}
	return o, nil
}

func removeLeftovers(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := filepath.Join(parent, e.Name())
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its session removed it meanwhile
		}
		if err != nil {
			return fmt.Errorf("leftover of an earlier session: %w", err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.RemoveAll(p)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("leftover of an earlier session: %w", err)
		}
	}
	return nil
}

// remove removes the folder and lets go of it. It is safe on nil.
func (o *ownFolder) remove() error {
	if o == nil {
		return nil
	}
	err := os.RemoveAll(o.path)
	if o.owner != nil {
		err = errors.Join(err, o.owner.Close())
	}
	return err
}
