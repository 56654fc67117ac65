// Package held keeps what a sweep or an apply took out of a workspace: files that some tool on the person's machine would
// have executed. Nothing is lost: an item lies in the state folder with its mode and time until the person puts it back
// (keep) or deletes it (drop).
//
// An item is a folder held/ID with record.json and, next to it, the file or folder itself under the name "item". The record
// is written before the move and again after it, so a kill -9 at any point leaves either the workspace as it was or an item
// that List shows. The bytes are hashed when they are held: a process that still has the file open, or another hard link,
// can change them, and what the person looked at is what goes back.
//
// The session supervisor and the held command import it; code behind the wall must not. It imports platform/workfs,
// platform/gitconfig, enforce/protect and runtime/treescan. What must not be added: names to protect (enforce/protect), and
// questions to the person (the caller asks before it calls Hold).
package held

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"coworker/platform/workfs"
)

var (
	// ErrExists is returned by Keep when something stands at the item's place.
	ErrExists = errors.New("something is at that place")
	// ErrChanged is returned by Keep when the item is not what was held.
	ErrChanged = errors.New("the held item was changed after it was held")
	// ErrNoItem is returned for an id that names nothing.
	ErrNoItem = errors.New("no such held item")
)

// bounds are generous: an item that does not fit cannot be held, and then the session ends.
var bounds = workfs.Bounds{Entries: 1_000_000, Depth: 1024, Bytes: 8 << 30}

// digestBounds limits hashing. A bigger item has no digest and goes back only with force.
var digestBounds = workfs.Bounds{Entries: 100_000, Depth: 1024, Bytes: 512 << 20}

// Item is one record.
type Item struct {
	ID        string    `json:"id"`
	Session   string    `json:"session"`
	Workspace string    `json:"workspace"` // absolute
	Rel       string    `json:"path"`      // bytes below the workspace; see RawRel
	RawRel    []byte    `json:"path_bytes,omitempty"`
	Kind      string    `json:"kind"`
	Reason    string    `json:"reason"`
	Rule      string    `json:"rule"`
	Mode      uint32    `json:"mode"`
	ModTime   time.Time `json:"mtime"`
	HeldAt    time.Time `json:"held_at"`
	Digest    string    `json:"sha256,omitempty"`
	// Skipped are sockets, fifos and devices: they were removed and cannot be put back. "." is the item itself.
	Skipped []string `json:"skipped,omitempty"`
	// Version is set if the item is the bytes of a file that still stands, with its executing part taken out.
	Version bool `json:"version,omitempty"`
	Moving  bool `json:"moving,omitempty"`
}

// idPattern is what NewID makes and the only thing that becomes a path.
var idPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}-[a-z0-9]{8}$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("held item %q: %w", id, ErrNoItem)
	}
	return nil
}
