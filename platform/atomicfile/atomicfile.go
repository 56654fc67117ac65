// Package atomicfile replaces a whole file so that a reader, or the machine
// after a power cut, sees the old content or the new and nothing between.
//
// Everything outside the walls may import it. It writes small private files
// (mode 0600) and must not grow appending, locking or other modes.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts data at path, replacing what is there. A symbolic link at path is
// replaced, not followed. When Write returns nil the data and the name are on
// stable storage; on error path is as before and no other file is left.
func Write(path string, data []byte) error {
	return place(path, data, os.Rename)
}

// Create is Write for a file that must not exist: exactly one of several
// concurrent callers succeeds and the others get an error that matches
// fs.ErrExist, by which time the winner's file is complete.
func Create(path string, data []byte) error {
	return place(path, data, func(temp, path string) error {
		// link(2) fails if the new name exists, which rename(2) cannot
		// be asked to do portably.
		if err := os.Link(temp, path); err != nil {
			return err
		}
		return os.Remove(temp)
	})
}

// place writes data to a temporary file beside path, so that the move stays
// within one file system, and moves it there.
func place(path string, data []byte, move func(temp, path string) error) (err error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	// os.CreateTemp opens with O_EXCL and mode 0600.
	f, err := os.CreateTemp(dir, "."+name+".*.tmp")
	if err != nil {
		return err
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfPresent(temp))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		// Without this, rename can reach the disk before the content and a
		// crash leaves an empty file (rename(2) orders names, not data).
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := move(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func removeIfPresent(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
