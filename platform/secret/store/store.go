package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"coworker/platform/atomicfile"
	"coworker/platform/filelock"
	"coworker/platform/secret"
)

const (
	headerName = "secrets.json"
	sealedName = "secrets.age"
	keyName    = "secrets.key"
	lockName   = "secrets.lock"
)

// Store is the secrets of one state folder. Nothing is kept in memory between calls: each reads what is on disk, under a
// lock that all processes share. It is safe for concurrent use.
type Store struct {
	dir     string
	keyring Keyring
	wait    time.Duration // for the lock
}

// New makes a Store for a state folder, which must exist and be private (paths.Dirs.Make). It reads nothing yet. keyring
// is nil where there is none.
func New(dir string, keyring Keyring) *Store {
	return &Store{dir: dir, keyring: keyring, wait: lockWait}
}

// lockWait is above what a holder needs: a keyring that asks a person (askWait), and some file operations.
const lockWait = askWait + 10*time.Second

// Key says where the key of the store is; the zero Key if there is no store yet.
func (s *Store) Key() (Key, error) {
	if empty, err := s.absent(); empty || err != nil {
		return Key{}, err
	}
	unlock, err := s.lock()
	if err != nil {
		return Key{}, err
	}
	defer unlock()
	h, err := s.header()
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, s.headless(err)
	}
	if err != nil {
		return Key{}, err
	}
	return s.describe(h), nil
}

// headless is a store whose header is gone: nothing says where its key was.
func (s *Store) headless(err error) error {
	return &Error{File: s.path(headerName), Reason: err, Advice: "restore it from a backup together with " + sealedName + "; to begin anew, move both away"}
}

// Entries are all secrets, by name. No store yet is no error.
func (s *Store) Entries() ([]secret.Entry, error) {
	if empty, err := s.absent(); empty || err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	entries, _, err := s.read()
	return entries, err
}

// List is Entries without values.
func (s *Store) List() ([]secret.Info, error) {
	entries, err := s.Entries()
	out := make([]secret.Info, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Info())
	}
	return out, err
}

// For returns the named entries, in the order of the names. The error matches ErrNoEntry if one is not there.
func (s *Store) For(names ...string) ([]secret.Entry, error) {
	entries, err := s.Entries()
	if err != nil {
		return nil, err
	}
	var out []secret.Entry
	for _, name := range names {
		i := find(entries, name)
		if i < 0 {
			return nil, noEntry(name)
		}
		out = append(out, entries[i])
	}
	return out, nil
}

// Put adds entries, all or none. The first one makes the store. The error matches ErrExists if a name is taken and
// replace is false.
func (s *Store) Put(replace bool, added ...secret.Entry) error {
	if _, err := secret.Encode(added); err != nil { // before a store is made
		return &Error{Reason: err, Advice: "nothing was stored"}
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.create(); err != nil {
		return err
	}
	entries, id, err := s.read()
	if err != nil {
		return err
	}
	for _, e := range added {
		switch i := find(entries, e.Name); {
		case i < 0:
			entries = append(entries, e)
		case replace:
			entries[i] = e
		default:
			return fmt.Errorf("%w: %s", ErrExists, e.Name)
		}
	}
	return s.write(id, entries)
}

// Remove deletes entries, all or none. The error matches ErrNoEntry if one is not there.
func (s *Store) Remove(names ...string) error {
	if empty, err := s.absent(); empty || err != nil {
		if err == nil && len(names) > 0 {
			err = noEntry(names[0])
		}
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	entries, id, err := s.read()
	if err != nil {
		return err
	}
	for _, name := range names {
		i := find(entries, name)
		if i < 0 {
			return noEntry(name)
		}
		entries = slices.Delete(entries, i, i+1)
	}
	return s.write(id, entries)
}

func find(entries []secret.Entry, name string) int {
	return slices.IndexFunc(entries, func(e secret.Entry) bool { return e.Name == name })
}

// noEntry shows the name only if it can be one: it could be a value that was typed in its place.
func noEntry(name string) error {
	if !secret.ValidName(name) {
		return fmt.Errorf("%w of that name", ErrNoEntry)
	}
	return fmt.Errorf("%w named %s", ErrNoEntry, name)
}

// absent says that no part of a store is there.
func (s *Store) absent() (bool, error) {
	for _, name := range []string{headerName, sealedName} {
		_, err := os.Lstat(s.path(name))
		switch {
		case err == nil:
			return false, nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	return true, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// lock is released by the function that it returns.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.path(lockName), os.O_CREATE|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if !filelock.Within(f, s.wait) {
		return nil, errors.Join(&Error{File: f.Name(), Reason: errors.New("another coworker uses the secrets"), Advice: "try again"}, f.Close())
	}
	return func() { _ = f.Close() }, nil // nothing was written to it
}

// read opens the store. The caller holds the lock.
func (s *Store) read() ([]secret.Entry, *identity, error) {
	h, err := s.header()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, s.headless(err)
		}
		return nil, nil, err
	}
	id, err := s.key(h)
	if err != nil {
		return nil, nil, err
	}
	file := s.path(sealedName)
	data, err := readPrivate(file, maxSealed)
	if err != nil {
		return nil, nil, s.problem(file, err)
	}
	plain, err := id.open(data)
	if err != nil {
		return nil, nil, s.problem(file, err)
	}
	entries, err := secret.Decode(plain)
	if errors.Is(err, secret.ErrNewer) {
		return nil, nil, &Error{File: file, Reason: err, Advice: "use the newer coworker"}
	}
	if err != nil {
		return nil, nil, s.problem(file, err)
	}
	return entries, id, nil
}

func (s *Store) problem(file string, err error) error {
	return &Error{File: file, Reason: err, Advice: "restore it from a backup; to begin anew, move " + sealedName + " and " + headerName + " out of " + s.dir + " and set the secrets again"}
}

func (s *Store) write(id *identity, entries []secret.Entry) error {
	plain, err := secret.Encode(entries)
	if err != nil {
		return &Error{Reason: err, Advice: "nothing was changed"}
	}
	data, err := id.seal(plain)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(sealedName), data)
}
