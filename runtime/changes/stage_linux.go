package changes

import (
	"context"
	"errors"
	"time"

	"coworker/platform/workfs"
	"coworker/runtime/held"
)

var errNotBuilt = errors.New("not built")

// Options are the parts of an apply or undo that only the caller can bring.
type Options struct {
	// Resolve answers a conflict; nil leaves every one.
	Resolve func(Change) Resolution
	// Hold takes protected and secret files; nil leaves them in the stage, reported.
	Hold *held.Store
	Now  time.Time
}

// Store is the folder of all staged sessions of one person.
type Store struct{}

// Stage is one staged session. Whoever has it holds its lock until Close.
type Stage struct{}

// OpenStore opens the folder and makes it where it is not there.
func OpenStore(dir string) (*Store, error) { return nil, errNotBuilt }

// Close releases the store.
func (s *Store) Close() error { return errNotBuilt }

// Create makes the stage of a session that is about to start, and locks it.
func (s *Store) Create(ctx context.Context, r Request) (*Stage, error) { return nil, errNotBuilt }

// List describes every stage, oldest first.
func (s *Store) List() ([]Summary, error) { return nil, errNotBuilt }

// Open locks a stage whose session has ended. An empty name is the newest.
func (s *Store) Open(session string) (*Stage, error) { return nil, errNotBuilt }

// Folder is the absolute path of the folder with upper and work of a tree of the request; empty for one that is not staged.
func (st *Stage) Folder(tree int) string { return "" }

// Baseline remembers what the host's folder looks like. It is called before the cell starts.
func (st *Stage) Baseline(ctx context.Context, tree int, root *workfs.Root) error { return errNotBuilt }

// Ended says that the cell is dead and its overlay gone. A stage with nothing to apply and nothing to undo is removed.
func (st *Stage) Ended() error { return errNotBuilt }

// Close releases the lock. The stage stays.
func (st *Stage) Close() error { return errNotBuilt }

// Changes is what Apply would do. The cell must be stopped or dead.
func (st *Stage) Changes(ctx context.Context) (*Set, error) { return nil, errNotBuilt }

// Apply brings the changes into the host's folders. The cell must be stopped or dead.
func (st *Stage) Apply(ctx context.Context, o Options) (*Result, error) { return nil, errNotBuilt }

// Undo takes the newest apply back.
func (st *Stage) Undo(ctx context.Context, o Options) (*Result, error) { return nil, errNotBuilt }

// Discard removes the stage with everything in it, what could be undone included.
func (st *Stage) Discard(ctx context.Context) error { return errNotBuilt }
