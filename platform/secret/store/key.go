package store

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"coworker/platform/atomicfile"
)

// Place is where the key of a store is.
type Place string

// The places.
const (
	InKeyring Place = "keyring"
	InFile    Place = "file"
)

// Key tells a person about the key of a store.
type Key struct {
	Place Place  `json:"place,omitempty"` // empty: there is no store yet
	File  string `json:"file,omitempty"`  // of InFile
	// NoKeyring is why a file was chosen when the store was made.
	NoKeyring string `json:"no_keyring,omitempty"`
}

// header is secrets.json. It is plain: it says nothing that helps to open the store.
type header struct {
	Version     int    `json:"version"`
	Key         Place  `json:"key"`
	ID          string `json:"id"`          // of this store, random: several homes share one keyring
	Fingerprint string `json:"fingerprint"` // of the key
	NoKeyring   string `json:"no_keyring,omitempty"`
}

const (
	headerVersion = 1
	maxHeader     = 4 << 10
	maxKey        = 1 << 10
	service       = "coworker" // in the keyring
)

func (h header) user() string { return "secrets " + h.ID }

func (s *Store) describe(h header) Key {
	k := Key{Place: h.Key, NoKeyring: h.NoKeyring}
	if h.Key == InFile {
		k.File = s.path(keyName)
	}
	return k
}

// header reads secrets.json. The error matches fs.ErrNotExist if there is none.
func (s *Store) header() (header, error) {
	file := s.path(headerName)
	data, err := readPrivate(file, maxHeader)
	if errors.Is(err, fs.ErrNotExist) {
		return header{}, err
	}
	if err != nil {
		return header{}, s.problem(file, err)
	}
	var h header
	d := json.NewDecoder(bytes.NewReader(data))
	err = d.Decode(&h)
	switch _, after := d.Token(); {
	case err != nil || !errors.Is(after, io.EOF) || h.Version < 1:
		return header{}, s.problem(file, errors.New("it does not say where the key is"))
	case h.Version > headerVersion:
		return header{}, &Error{File: file, Reason: fmt.Errorf("written by a newer coworker (version %d)", h.Version), Advice: "use the newer coworker"}
	case h.Key != InKeyring && h.Key != InFile || h.ID == "" || h.Fingerprint == "":
		return header{}, s.problem(file, errors.New("it does not say where the key is"))
	}
	return h, nil
}

// key fetches the key that h names, and no other.
func (s *Store) key(h header) (*identity, error) {
	where := s.path(keyName)
	var text string
	var err error
	if h.Key == InKeyring {
		where = "the keyring"
		text, err = s.fromKeyring(h)
	} else {
		text, err = s.fromFile()
	}
	if err != nil {
		return nil, err
	}
	id, err := parseIdentity(text)
	if err == nil && id.fingerprint() != h.Fingerprint {
		err = errors.New("it holds the key of another store")
	}
	if err != nil {
		return nil, &Error{File: where, Reason: err, Advice: "put the right key back; without it the secrets are lost: then move " + sealedName + " and " + headerName + " out of " + s.dir + " and set them again"}
	}
	return id, nil
}

func (s *Store) fromFile() (string, error) {
	file := s.path(keyName)
	data, err := readPrivate(file, maxKey)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &Error{File: file, Reason: fmt.Errorf("the key of the secrets is missing: %w", err), Advice: "restore the file from a backup; without it the secrets are lost"}
	case errors.Is(err, errExposed):
		return "", &Error{File: file, Reason: err, Advice: "it must be a regular file that only you can read: chmod 600, no symbolic or hard link; if others could read it, set the secrets again under a new key"}
	case err != nil:
		return "", &Error{File: file, Reason: err, Advice: "check the owner and the mode of that path"}
	}
	return string(data), nil
}

func (s *Store) fromKeyring(h header) (string, error) {
	const unlock = "unlock the keyring of your desktop session, or run this where it can be reached; the key is never looked for elsewhere"
	if s.keyring == nil {
		return "", &Error{File: s.path(headerName), Reason: errors.New("the key of the secrets is in the keyring, and there is none here"), Advice: unlock}
	}
	text, err := s.keyring.Get(service, h.user())
	switch {
	case errors.Is(err, ErrNotInKeyring):
		return "", &Error{File: s.path(headerName), Reason: fmt.Errorf("the keyring has no key for these secrets: %w", err), Advice: "restore the keyring from a backup; without the key the secrets are lost"}
	case err != nil:
		return "", &Error{File: s.path(headerName), Reason: fmt.Errorf("the key of the secrets is in the keyring: %w", err), Advice: unlock}
	}
	return text, nil
}

// create makes an empty store if no part of one is there. The header is written before the entries: with it alone the
// store is reported as damaged, without it the place of the key could be chosen a second time.
//
// The caller holds the lock, so what is not there now does not come before it is written; files are put in place by a
// rename, which leaves no second name behind in a crash.
func (s *Store) create() error {
	if empty, err := s.absent(); !empty || err != nil {
		return err
	}
	h := header{Version: headerVersion, Key: InKeyring, ID: rand.Text()}
	id, err := newIdentity()
	if err != nil {
		return err
	}
	if refused := s.intoKeyring(h, id); refused != nil {
		h.Key, h.NoKeyring = InFile, clip(refused.Error())
		if id, err = s.intoFile(id); err != nil {
			return err
		}
	}
	h.Fingerprint = id.fingerprint()
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.path(headerName), append(data, '\n')); err != nil {
		return err
	}
	return s.write(id, nil)
}

// clip bounds the words of a keyring, so that the header stays readable (maxHeader, with every byte escaped).
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 300)], "") }

// intoKeyring stores the key and reads it back: some keyrings take everything and keep nothing.
func (s *Store) intoKeyring(h header, id *identity) error {
	if s.keyring == nil {
		return errors.New("this session has no keyring")
	}
	if err := s.keyring.Set(service, h.user(), id.text()); err != nil {
		return err
	}
	back, err := s.keyring.Get(service, h.user())
	if err == nil && back != id.text() {
		err = errors.New("the keyring did not keep the key")
	}
	return err
}

// intoFile stores the key beside the entries. A key that is left of a store which was moved away stays the key: that
// store still needs it.
func (s *Store) intoFile(id *identity) (*identity, error) {
	if _, err := os.Lstat(s.path(keyName)); errors.Is(err, fs.ErrNotExist) {
		return id, atomicfile.Write(s.path(keyName), []byte(id.text()+"\n"))
	}
	text, err := s.fromFile()
	if err != nil {
		return nil, err
	}
	if id, err = parseIdentity(text); err != nil {
		return nil, &Error{File: s.path(keyName), Reason: err, Advice: "move the file away"}
	}
	return id, nil
}
