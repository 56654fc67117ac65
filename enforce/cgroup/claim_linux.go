package cgroup

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

// claim makes a session's folder and locks it for as long as the supervisor lives: the kernel drops
// the lock of flock(2) with the last descriptor, however the supervisor ends. Folders that nobody
// holds were left behind by one that was killed, and go first, with whatever still runs in them. A
// process id in the name would not do: ids are used again, and differ between pid namespaces that
// share a control group tree.
func claim(parent, name string, h hierarchy) (dir, error) {
	// Between making a folder and locking it, it looks like one that was left behind. The lock of
	// the parent keeps others from looking then.
	gate, err := os.Open(parent)
	if err != nil {
		return dir{}, fmt.Errorf("open %s: %w", parent, unwrapPath(err))
	}
	defer gate.Close()
	alone := filelock.Within(gate, gateLimit)
	if alone {
		if err := removeStale(parent, h); err != nil {
			return dir{}, err
		}
	}
	d := dir{path: filepath.Join(parent, name), hierarchy: h}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		return dir{}, fmt.Errorf("make %s: %w", d.path, unwrapPath(err))
	}
	if d.owner, err = os.Open(d.path); err == nil && !filelock.Within(d.owner, gateLimit) {
		err = errors.Join(errors.New("another process holds its lock"), d.owner.Close())
	}
	if err != nil {
		return dir{}, errors.Join(fmt.Errorf("lock %s: %w", d.path, unwrapPath(err)), unix.Rmdir(d.path))
	}
	return d, nil
}

// gateLimit bounds the wait for a supervisor that looks for stale folders at this moment.
const gateLimit = 2 * time.Second

// removeStale removes the folders below parent that no supervisor holds.
func removeStale(parent string, h hierarchy) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("look for stale groups in %s: %w", parent, unwrapPath(err))
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		d := dir{path: filepath.Join(parent, e.Name()), hierarchy: h}
		f, err := os.Open(d.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its supervisor removed it meanwhile
		}
		if err != nil {
			return fmt.Errorf("look for stale groups: %w", err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = d.remove([]dir{d})
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("remove a stale group: %w", err)
		}
	}
	return nil
}
