package changes

import (
	"errors"
	"io/fs"
	"time"

	"coworker/enforce"
)

var (
	// ErrBusy is returned for a stage that a running session, or another command, holds.
	ErrBusy = errors.New("in use by a running session or another command")
	// ErrNoStage is returned where no staged session has that name.
	ErrNoStage = errors.New("no such staged session")
	// ErrNothing is returned by Undo where nothing was applied, or it was undone.
	ErrNothing = errors.New("nothing was applied")
	// ErrLimit is returned where a bound is exceeded: names, depth, bytes.
	ErrLimit = errors.New("over a limit of the staged workspace")
	// ErrMoved is returned where the host's folder is not the one that was staged.
	ErrMoved = errors.New("is not the folder that was staged")
	// ErrTorn is returned for a journal or a record that does not hold together.
	ErrTorn = errors.New("the stage's own record is damaged")
)

// Request says what to stage. Only the writable trees get a folder.
type Request struct {
	Session, Workspace string
	UID, GID           int // who owns the workspace, and so what is written in it
	Trees              []enforce.Tree
	Now                time.Time
}

// Kind is what a change does to a path.
type Kind string

// The kinds of change.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	Mode     Kind = "mode"         // permission bits, times or user.* attributes; the content is the same
	Retyped  Kind = "type-changed" // another kind of file stands there
	Made     Kind = "folder-made"
	Removed  Kind = "folder-removed"
)

// Verdict is what apply does with a change.
type Verdict string

// The verdicts. Only Clean is applied without a question.
const (
	Clean    Verdict = "clean"
	Conflict Verdict = "conflict" // the person edited the path since the session began
	Held     Verdict = "held"     // a protected or secret path: the new version goes to the held files
	LeftOut  Verdict = "left-out" // cannot or must not be applied; Reason says why
)

// Change is one path that differs.
type Change struct {
	Tree    int     `json:"tree"`
	Root    string  `json:"root"` // the tree's absolute path
	Rel     string  `json:"path"` // bytes below the tree; see RawRel
	RawRel  []byte  `json:"path_bytes,omitempty"`
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	Rule    string  `json:"rule,omitempty"`
	// Type is what stands there afterwards (file, folder, symlink), or what is deleted.
	Type    string      `json:"type"`
	Target  string      `json:"target,omitempty"` // of a symlink
	OldMode fs.FileMode `json:"-"`
	NewMode fs.FileMode `json:"-"`
	OldSize int64       `json:"old_size"`
	NewSize int64       `json:"new_size"`
	// Note says what of the change is not taken over, or more about it: setuid bits, attributes, inert keys merged.
	Note string `json:"note,omitempty"`

	plan step
}

// Set is what apply would do, in the order it would be done.
type Set struct {
	Session   string
	Workspace string
	Changes   []Change
	// Same counts paths that the session wrote and that are as before.
	Same int
}

// Count tells how many changes have a verdict.
func (s *Set) Count(v Verdict) (n int) {
	for i := range s.Changes {
		if s.Changes[i].Verdict == v {
			n++
		}
	}
	return n
}

// Resolution is the answer to a conflict.
type Resolution uint8

// The answers. Leave keeps the conflict for another time and is the default.
const (
	Leave Resolution = iota
	KeepHost
	TakeStaged
)

// Result is what an apply or an undo did.
type Result struct {
	Apply     string     `json:"apply,omitempty"` // names this apply; Undo takes back the newest
	Done      []Change   `json:"done"`
	Conflicts []Change   `json:"conflicts"` // left as they are
	Kept      []Change   `json:"kept"`      // conflicts where the host's version stays
	LeftOut   []Change   `json:"left_out"`
	HeldItems []HeldItem `json:"held"`
	// Finished names an apply that was interrupted and was completed or rolled back first.
	Finished string `json:"finished,omitempty"`
}

// HeldItem is what went to the held files.
type HeldItem struct {
	ID     string `json:"id"`
	Rel    string `json:"path"`
	Reason string `json:"reason"`
}

// Summary describes a stage for a list.
type Summary struct {
	Session   string    `json:"session"`
	Workspace string    `json:"workspace"`
	Created   time.Time `json:"created"`
	Ended     time.Time `json:"ended,omitzero"`
	Live      bool      `json:"live"`    // a session or another command holds it
	Applies   int       `json:"applies"` // that can be undone
	Problem   string    `json:"problem,omitempty"`
}
