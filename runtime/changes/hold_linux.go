package changes

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"coworker/platform/fsuser"
	"coworker/platform/workfs"
	"coworker/runtime/held"
)

// holdBounds limit one held folder.
var holdBounds = workfs.Bounds{Entries: 100_000, Depth: maxDepth, Bytes: 4 << 30}

// holdOne copies the session's version and gives it to the held files. It is copied with the owner's rights and moved with
// ours, from a folder that no session reaches.
func (st *Stage) holdOne(ctx context.Context, t *tree, c *Change, store *held.Store) (held.Item, error) {
	area := strings.ToLower(rand.Text()[:16])
	err := fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		if err := t.hold.Mkdir(area, 0o700); err != nil {
			return err
		}
		parent, err := makeParents(t.hold, area, c.Rel)
		if err != nil {
			return err
		}
		defer parent.Close()
		up, name, err := t.upper.Parent(c.Rel)
		if err != nil {
			return err
		}
		defer up.Close()
		h := &holder{left: holdBounds}
		return h.copy(up, parent, name, 0)
	})
	defer t.hold.RemoveAll(area, stageBounds)
	if err != nil {
		return held.Item{}, err
	}
	d, err := t.hold.OpenDir(area)
	if err != nil {
		return held.Item{}, err
	}
	defer d.Close()
	root, err := d.AsRoot(t.path)
	if err != nil {
		return held.Item{}, err
	}
	defer root.Close()
	return store.Hold(ctx, held.Request{Root: root, Rel: c.Rel, Session: st.meta.Session, Reason: c.Reason, Rule: c.Rule, Workspace: t.path})
}

// makeParents makes the folders above a path, so that the held item knows its place.
func makeParents(root *workfs.Root, area, rel string) (*workfs.Dir, error) {
	at := area
	for {
		part, rest, more := strings.Cut(rel, "/")
		if !more {
			return root.OpenDir(at)
		}
		at, rel = at+"/"+part, rest
		if err := root.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
	}
}

// holder copies a hostile folder: regular files, folders and symlinks, permission bits only.
type holder struct{ left workfs.Bounds }

func (h *holder) copy(from, to *workfs.Dir, name string, depth int) error {
	if h.left.Entries--; h.left.Entries < 0 || depth > h.left.Depth {
		return fmt.Errorf("more than %d names or %d folders deep: %w", holdBounds.Entries, holdBounds.Depth, ErrLimit)
	}
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Kind {
	case workfs.Symlink:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		return to.Symlink(target, name)
	case workfs.Regular:
		return h.file(from, to, name)
	case workfs.Directory:
		return h.folder(from, to, name, depth)
	}
	return nil // whiteouts, sockets, fifos and devices have no bytes
}

func (h *holder) file(from, to *workfs.Dir, name string) error {
	in, info, err := from.OpenForced(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if h.left.Bytes -= info.Size; h.left.Bytes < 0 {
		return fmt.Errorf("more than %d bytes: %w", holdBounds.Bytes, ErrLimit)
	}
	err = fill(to, name, func(out *os.File) error { return workfs.CopyData(out, in, info.Size, info.Size) })
	if err != nil {
		return err
	}
	return dress(to, name, attrs{Mode: info.Mode.Perm(), Mtime: info.ModTime.UnixNano()})
}

func (h *holder) folder(from, to *workfs.Dir, name string, depth int) error {
	src, err := from.OpenDirForced(name)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := to.Mkdir(name, 0o700); err != nil {
		return err
	}
	dst, err := to.OpenDir(name)
	if err != nil {
		return err
	}
	defer dst.Close()
	list, err := src.Entries(h.left.Entries + 1)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := h.copy(src, dst, e.Name, depth+1); err != nil {
			return err
		}
	}
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	return dress(to, name, attrs{Mode: info.Mode.Perm() | fs.FileMode(0o700), Mtime: info.ModTime.UnixNano()})
}
