package held

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"coworker/platform/workfs"
)

const (
	recordName = "record.json"
	itemName   = "item"
	partName   = "part" // a copy that is not complete
	maxRecord  = 1 << 20
	maxItems   = 100_000
)

// Store is the held folder. Several processes may use one: ids are random and records are replaced atomically.
type Store struct{ root *workfs.Root }

// Open opens the store in a state folder and makes it if it is not there.
func Open(state string) (*Store, error) {
	dir := filepath.Join(state, "held")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := workfs.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat()
	if err == nil && (info.UID != uint32(os.Geteuid()) || info.Mode.Perm()&0o077 != 0) {
		err = fmt.Errorf("%s has mode %v and owner %d: it must be private to %d", dir, info.Mode, info.UID, os.Geteuid())
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &Store{root: root}, nil
}

// Close releases the store.
func (s *Store) Close() error { return s.root.Close() }

// Request says what to hold and why.
type Request struct {
	Root    *workfs.Root
	Rel     string
	Session string
	Reason  string
	Rule    string
	// Workspace is where the item belongs, if that is not Root: a staged file was never there.
	Workspace string
}

func (s *Store) begin(r Request, info workfs.Info) (Item, error) {
	it := Item{
		ID:      time.Now().UTC().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:8]),
		Session: r.Session, Workspace: cmp.Or(r.Workspace, r.Root.Name()), Rel: r.Rel, Kind: info.Kind.String(), Reason: r.Reason, Rule: r.Rule,
		Mode: uint32(info.Mode), ModTime: info.ModTime, HeldAt: time.Now().UTC(), Moving: true,
	}
	if !utf8.ValidString(it.Rel) {
		it.RawRel = []byte(it.Rel) // JSON strings are Unicode, names are bytes
	}
	if err := s.root.Mkdir(it.ID, 0o700); err != nil {
		return Item{}, err
	}
	if err := s.write(it); err != nil {
		return Item{}, errors.Join(err, s.root.RemoveAll(it.ID, bounds))
	}
	return it, nil
}

func (s *Store) write(it Item) error {
	data, err := json.MarshalIndent(it, "", "  ")
	if err != nil {
		return err
	}
	return s.root.WriteFileAtomic(it.ID+"/"+recordName, append(data, '\n'), 0o600)
}

// Hold moves a file or folder out of the workspace.
func (s *Store) Hold(ctx context.Context, r Request) (Item, error) {
	if err := ctx.Err(); err != nil {
		return Item{}, err
	}
	info, err := r.Root.Lstat(r.Rel)
	if err != nil {
		return Item{}, err
	}
	it, err := s.begin(r, info)
	if err != nil {
		return Item{}, fmt.Errorf("hold %s: %w", r.Rel, err)
	}
	if err := s.take(r, info, &it); err != nil {
		err = fmt.Errorf("hold %s: %w", r.Rel, err)
		if _, lerr := s.root.Lstat(it.ID + "/" + itemName); errors.Is(lerr, fs.ErrNotExist) && len(it.Skipped) == 0 {
			return Item{}, errors.Join(err, s.root.RemoveAll(it.ID, bounds)) // nothing was taken
		}
		return Item{}, err
	}
	return it, s.settle(&it)
}

// take brings the item into the store.
func (s *Store) take(r Request, info workfs.Info, it *Item) error {
	switch info.Kind {
	case workfs.Regular, workfs.Directory, workfs.Symlink:
	default: // no bytes to keep; a device cannot be copied without privilege
		it.Skipped = []string{"."}
		return withRights(r, info, func() error { return r.Root.RemoveAll(r.Rel, bounds) })
	}
	dest := it.ID + "/" + itemName
	err := withRights(r, info, func() error { return r.Root.Move(r.Rel, s.root, dest) })
	if !errors.Is(err, workfs.ErrCrossDevice) {
		return err
	}
	part := it.ID + "/" + partName
	return withRights(r, info, func() error {
		skipped, err := r.Root.CopyTo(r.Rel, s.root, part, bounds)
		if err != nil {
			return err
		}
		it.Skipped = skipped
		if err := s.root.Move(part, s.root, dest); err != nil {
			return err
		}
		return r.Root.RemoveAll(r.Rel, bounds)
	})
}

// withRights runs f, and again with rights that the owner took away: a cell can make a folder, or the one above it,
// read-only to keep an unprivileged supervisor out. The folder above gets its mode back; the item's own is in the record.
func withRights(r Request, info workfs.Info, f func() error) error {
	err := f()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	above := "."
	if i := strings.LastIndexByte(r.Rel, '/'); i >= 0 {
		above = r.Rel[:i]
	}
	parent, perr := r.Root.Lstat(above)
	if perr != nil {
		return errors.Join(err, perr)
	}
	if cerr := r.Root.Chmod(above, parent.Mode|0o300); cerr != nil {
		return errors.Join(err, cerr)
	}
	if info.Kind == workfs.Directory {
		if cerr := r.Root.Chmod(r.Rel, info.Mode|0o700); cerr != nil {
			return errors.Join(err, cerr)
		}
	}
	return errors.Join(f(), r.Root.Chmod(above, parent.Mode))
}

// settle completes a record after its item is in place; List calls it too, for a process that was killed in between.
func (s *Store) settle(it *Item) error {
	if len(it.Skipped) == 0 || it.Skipped[0] != "." {
		digest, err := s.root.Digest(it.ID+"/"+itemName, digestBounds)
		switch {
		case err == nil:
			it.Digest = digest
		case errors.Is(err, workfs.ErrTooBig), errors.Is(err, fs.ErrPermission):
			// No digest: Keep asks for force.
		default:
			return fmt.Errorf("held item %s: %w", it.ID, err)
		}
	}
	it.Moving = false
	return s.write(*it)
}

// HoldVersion keeps bytes of a file that stays in the workspace, before its executing part is taken out.
func (s *Store) HoldVersion(r Request, info workfs.Info, data []byte) (Item, error) {
	it, err := s.begin(r, info)
	if err != nil {
		return Item{}, fmt.Errorf("hold a version of %s: %w", r.Rel, err)
	}
	it.Version = true
	if err := s.root.WriteFileAtomic(it.ID+"/"+itemName, data, info.Mode.Perm()|0o600); err != nil {
		return Item{}, errors.Join(err, s.root.RemoveAll(it.ID, bounds))
	}
	return it, s.settle(&it)
}

// Get reads one record.
func (s *Store) Get(id string) (Item, error) {
	if err := checkID(id); err != nil {
		return Item{}, err
	}
	data, _, err := s.root.ReadFile(id+"/"+recordName, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return Item{}, fmt.Errorf("held item %q: %w", id, ErrNoItem)
	}
	if err != nil {
		return Item{}, err
	}
	var it Item
	if err := json.Unmarshal(data, &it); err != nil {
		return Item{}, fmt.Errorf("record of held item %s: %w", id, err)
	}
	if it.ID != id {
		return Item{}, fmt.Errorf("record of held item %s names %q", id, it.ID)
	}
	if it.RawRel != nil {
		it.Rel = string(it.RawRel)
	}
	return it, workfs.CheckPath(it.Rel)
}

// List returns every item, oldest first, and the ids whose record cannot be read. A move that was killed before anything
// was taken is left out; one that was killed after is completed.
func (s *Store) List() (items []Item, broken []string, err error) {
	entries, err := s.root.ReadDir(".", maxItems)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.Kind != workfs.Directory || checkID(e.Name) != nil {
			continue
		}
		it, err := s.Get(e.Name)
		if errors.Is(err, ErrNoItem) {
			continue // another process makes it, or is removing it
		}
		if err != nil {
			broken = append(broken, e.Name)
			continue
		}
		whole, err := s.complete(&it)
		if err != nil {
			broken = append(broken, e.Name)
		}
		if err != nil || !whole {
			continue
		}
		items = append(items, it)
	}
	return items, broken, nil
}

// leftoverAge is when a record without an item cannot belong to a running process any more.
const leftoverAge = time.Hour

// complete tells whether a record has its item, and finishes what a killed process began. A record without an item is from
// a move that took nothing or from a Keep that was done but for the record; it is removed once it is old.
func (s *Store) complete(it *Item) (bool, error) {
	_, err := s.root.Lstat(it.ID + "/" + itemName)
	switch {
	case err == nil && it.Moving:
		return true, s.settle(it)
	case err == nil, len(it.Skipped) > 0 && it.Skipped[0] == ".":
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	case time.Since(it.HeldAt) > leftoverAge:
		return false, s.root.RemoveAll(it.ID, bounds)
	}
	return false, nil
}

// Drop deletes an item.
func (s *Store) Drop(id string) error {
	if _, err := s.Get(id); err != nil {
		return err
	}
	// The item goes first: a kill in between leaves a record without an item, which Drop removes and Keep refuses.
	if err := s.root.RemoveAll(id+"/"+itemName, bounds); err != nil {
		return err
	}
	return s.root.RemoveAll(id, bounds)
}

// Keep puts an item back at its place. Without force it refuses if something stands there or the item changed; with force
// what stands there is held in its turn, and that item is returned.
func (s *Store) Keep(ctx context.Context, id string, force bool) (displaced *Item, err error) {
	it, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	if _, err := s.root.Lstat(id + "/" + itemName); err != nil {
		return nil, fmt.Errorf("held item %s has nothing to put back (%s): %w", id, it.Kind, ErrNoItem)
	}
	if !force {
		digest, err := s.root.Digest(id+"/"+itemName, digestBounds)
		if err != nil || digest != it.Digest {
			return nil, fmt.Errorf("held item %s: %w", id, errors.Join(ErrChanged, err))
		}
	}
	root, err := workfs.OpenRoot(it.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	_, err = root.Lstat(it.Rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !force:
		return nil, fmt.Errorf("put back %s/%s: %w", it.Workspace, it.Rel, ErrExists)
	default:
		old, err := s.Hold(ctx, Request{Root: root, Rel: it.Rel, Session: it.Session, Reason: "replaced by held item " + id, Rule: it.Rule})
		if err != nil {
			return nil, err
		}
		displaced = &old
	}
	return displaced, s.putBack(root, it)
}

func (s *Store) putBack(root *workfs.Root, it Item) error {
	from := it.ID + "/" + itemName
	err := s.root.Move(from, root, it.Rel)
	if errors.Is(err, workfs.ErrCrossDevice) {
		err = s.copyBack(root, from, it.Rel)
	}
	if errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("put back %s/%s: %w", it.Workspace, it.Rel, ErrExists)
	}
	if err != nil {
		return err
	}
	if it.Kind == workfs.Directory.String() {
		if err := root.Chmod(it.Rel, fs.FileMode(it.Mode)); err != nil {
			return err
		}
	}
	return s.root.RemoveAll(it.ID, bounds)
}

// copyBack copies next to the place and renames, so that a kill in between never leaves half of an item at the place.
func (s *Store) copyBack(root *workfs.Root, from, rel string) error {
	temp := ".coworker-" + rand.Text()
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		temp = rel[:i+1] + temp
	}
	_, err := s.root.CopyTo(from, root, temp, bounds)
	if err == nil {
		err = root.Move(temp, root, rel)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(temp, bounds))
	}
	return nil
}
