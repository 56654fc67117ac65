package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"coworker/platform/paths"
	"coworker/platform/workfs"
)

// homeBounds limit work on one private home: what is in there was written by sessions.
var homeBounds = workfs.Bounds{Entries: 20_000_000, Depth: 1024, Bytes: 1 << 50}

// homes are all private homes that were found, with the open folders that they lie in.
type homes struct {
	list  []home
	roots []*workfs.Root
}

func (h *homes) close() error {
	var errs []error
	for _, r := range h.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// findHomes looks into the person's cache folder and, for all, into those of sessions that root ran for others.
func (e *environment) findHomes(all bool) (*homes, paths.Dirs, error) {
	d, err := e.dirs()
	if err != nil {
		return nil, d, err
	}
	folders := []string{d.Cache}
	if all {
		folders = append(folders, otherCaches()...)
	}
	h := &homes{}
	for _, dir := range folders {
		if err := h.add(filepath.Join(dir, "homes")); err != nil {
			return nil, d, errors.Join(err, h.close())
		}
	}
	return h, d, nil
}

func (h *homes) add(folder string) error {
	root, err := workfs.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h.roots = append(h.roots, root)
	entries, err := root.ReadDir(".", 1_000_000)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Kind != workfs.Directory {
			continue
		}
		one := home{Key: entry.Name, Folder: filepath.Join(folder, entry.Name)}
		one.remove = func() error { return removeBelow(root, entry.Name) }
		one.measure(root)
		h.list = append(h.list, one)
	}
	return nil
}

// measure adds up a home. What cannot be measured is counted as far as it could be, and says so.
func (h *home) measure(root *workfs.Root) {
	dir, err := root.OpenDir(h.Key)
	if err != nil {
		h.Partly = true
		return
	}
	defer dir.Close()
	if info, err := dir.Stat(); err == nil {
		h.Used = latest(info.ModTime, info.Change)
	}
	h.walk(dir, 0)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (h *home) walk(dir *workfs.Dir, depth int) {
	if depth > homeBounds.Depth || h.Entries > homeBounds.Entries {
		h.Partly = true
		return
	}
	var below []string
	err := dir.Each(workfs.NewDirBuffer(), func(name []byte, kind workfs.Kind, _ uint64) error {
		h.Entries++
		if kind == workfs.Directory {
			below = append(below, string(name))
			return nil
		}
		info, err := dir.Lstat(string(name))
		if err != nil {
			return err
		}
		h.Size += info.Size
		return nil
	})
	h.Partly = h.Partly || err != nil
	for _, name := range below {
		next, err := dir.OpenDir(name)
		if err != nil {
			h.Partly = true
			continue
		}
		h.walk(next, depth+1)
		next.Close()
	}
}

// removeBelow deletes one folder of homes. One that somebody else deleted meanwhile is fine.
func removeBelow(root *workfs.Root, name string) error {
	err := root.RemoveAll(name, homeBounds)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// otherCaches are where the sessions that root runs for others keep their homes.
func otherCaches() []string {
	if os.Geteuid() != 0 {
		return nil
	}
	found, err := filepath.Glob("/var/cache/coworker/[0-9]*")
	if err != nil {
		return nil // cannot be: the pattern is a constant
	}
	return found
}
