package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of a store.
const (
	MaxEntries   = 512
	MaxPlaintext = 4 << 20 // bytes
)

// version is that of the plaintext. Members are never added to a version: an older program that rewrites the store would
// drop them.
const version = 1

// purpose binds a plaintext to this use. age authenticates a file with its key but takes no associated data, so that
// another file under the same key would otherwise pass for the store.
const purpose = "coworker secrets"

// ErrNewer is a store that a newer program wrote.
var ErrNewer = errors.New("written by a newer coworker")

type document struct {
	Version int      `json:"version"`
	Purpose string   `json:"purpose"`
	Entries []stored `json:"entries"`
}

type stored struct {
	Name    string    `json:"name"`
	Value   []byte    `json:"value"` // base64 in JSON: a value is bytes, not text
	Binding Binding   `json:"binding"`
	Source  Source    `json:"source"`
	Created time.Time `json:"created"`
}

// Encode is the plaintext of a store. Entries are checked and ordered by name.
func Encode(entries []Entry) ([]byte, error) {
	d := document{Version: version, Purpose: purpose, Entries: []stored{}}
	entries = slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if err := checkAll(entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		d.Entries = append(d.Entries, stored{e.Name, []byte(e.Value.Reveal()), e.Binding, e.Source, e.Created.UTC()})
	}
	data, err := json.Marshal(d)
	if err == nil && len(data) > MaxPlaintext {
		err = fmt.Errorf("the secrets together are larger than %d MiB", MaxPlaintext>>20)
	}
	return data, err
}

// Decode reads a plaintext. Errors name no content: what is there in place of a store may be a secret too.
func Decode(data []byte) ([]Entry, error) {
	if len(data) > MaxPlaintext {
		return nil, fmt.Errorf("the content is larger than %d MiB", MaxPlaintext>>20)
	}
	var head struct {
		Version int    `json:"version"`
		Purpose string `json:"purpose"`
	}
	if json.Unmarshal(data, &head) != nil {
		return nil, errors.New("the content is not a list of secrets")
	}
	switch {
	case head.Purpose != purpose:
		return nil, errors.New("the content has another purpose")
	case head.Version > version:
		return nil, fmt.Errorf("%w (version %d, this one reads %d)", ErrNewer, head.Version, version)
	}
	var d document
	r := json.NewDecoder(bytes.NewReader(data))
	r.DisallowUnknownFields()
	if r.Decode(&d) != nil {
		return nil, fmt.Errorf("the content is not that of version %d", version)
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) || d.Version != version {
		return nil, fmt.Errorf("the content is not that of version %d, or something follows it", version)
	}
	var out []Entry
	for _, s := range d.Entries {
		out = append(out, Entry{s.Name, NewValue(string(s.Value)), s.Binding, s.Source, s.Created})
	}
	return out, checkAll(out)
}

// checkAll holds for what is written and for what is read: a store never yields an entry that could not be set.
func checkAll(entries []Entry) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("%d secrets, the limit is %d", len(entries), MaxEntries)
	}
	for i, e := range entries {
		if err := e.Check(); err != nil {
			return err
		}
		if i > 0 && entries[i-1].Name >= e.Name {
			return fmt.Errorf("%s is there twice, or out of order", e.Name)
		}
	}
	return nil
}
