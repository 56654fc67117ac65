package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/platform/workfs"
	"coworker/runtime/treescan"
)

// guardedTree is one tree of the Spec with everything the supervisor must know to keep its
// covers in place.
type guardedTree struct {
	tree    enforce.Tree
	staged  bool // what is written in the tree goes elsewhere
	root    *workfs.Root
	watcher *treescan.Watcher // nil for read-only trees: nothing can appear there; nil for staged ones of one command
	scan    *treescan.Result
	covers  map[string]enforce.CoverKind // by relative path
	pinned  map[string][]byte            // last accepted bytes of protected files
	todos   map[string][]byte            // rebase to-do lists; nil bytes for those made in the session
	unseen  []treescan.Secret            // of a staged tree: secrets that appeared and could not be masked yet
	tracked []string                     // secret names that stay visible, see visible
}

// maxPinned bounds what is kept of one protected file to compare with. A longer file cannot be
// compared, and a window in which it was replaced holds the new version whole.
const maxPinned = 1 << 20

// guardTree scans a tree and fills in what is to be pinned and masked. In a staged tree nothing needs a pin.
func guardTree(ctx context.Context, t enforce.Tree, cfg treescan.Config, named namedPaths, staged bool) (_ *guardedTree, err error) {
	g := &guardedTree{tree: t, staged: staged, covers: map[string]enforce.CoverKind{}, pinned: map[string][]byte{}, todos: map[string][]byte{}}
	if t.File {
		return g, nil
	}
	if g.root, err = workfs.OpenRoot(t.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	info, err := g.root.Stat()
	if err != nil {
		return nil, err
	}
	if info.Dev != t.Device || info.Ino != t.Inode {
		return nil, fmt.Errorf("tree %q is another folder than a moment ago", t.Path)
	}
	if t.Writable && !(g.staged && cfg.NoMarks) {
		g.watcher, g.scan, err = treescan.Watch(ctx, g.root, cfg)
	} else {
		g.scan, err = treescan.Scan(ctx, g.root, cfg)
	}
	if err != nil {
		return nil, err
	}
	if err := g.fill(ctx, named); err != nil {
		return nil, err
	}
	return g, g.readPinned()
}

// namedPaths are absolute paths that a person named: lifted are writable although protected,
// shown are visible although their name marks a secret.
type namedPaths struct{ lifted, shown []string }

func (g *guardedTree) close() error {
	var errs []error
	if g.watcher != nil {
		errs = append(errs, g.watcher.Close())
	}
	if g.root != nil {
		errs = append(errs, g.root.Close())
	}
	return errors.Join(errs...)
}

// fill turns the scan into covers.
func (g *guardedTree) fill(ctx context.Context, named namedPaths) error {
	t := &g.tree
	covered := t.Writable && !g.staged // what is written in a staged tree reaches no protected path
	if g.staged {
		t.Pins, t.Protected = nil, nil
	}
	if covered {
		for _, p := range g.scan.Protected {
			if !p.Rule.AtEnd && p.Kind != workfs.Symlink && !g.isLifted(p.Rel, named.lifted) {
				t.Protected = append(t.Protected, p.Rel)
			}
		}
		t.Pins = append(t.Pins, ancestors(t.Protected)...)
	}
	for _, s := range g.scan.Secrets {
		if s.Kind == workfs.Symlink {
			continue
		}
		visible, err := g.visible(ctx, s, named.shown)
		if err != nil {
			return err
		}
		if !visible {
			t.Masks = append(t.Masks, s.Rel)
		}
	}
	for _, s := range g.scan.Sockets {
		t.Masks = append(t.Masks, s.Rel)
	}
	for _, l := range g.scan.Links {
		// Another name of a secret or protected file leads to the same bytes.
		if slices.Contains(t.Masks, l.Rel) {
			t.Masks = append(t.Masks, l.Aliases...)
		} else if covered && slices.Contains(t.Protected, l.Rel) {
			t.Protected = append(t.Protected, l.Aliases...)
		}
	}
	// What was not looked at is not shown: folders that a person excluded from the scan, and
	// folders without rights, whose owner could give the rights back from inside.
	t.MaskDirs = append(t.MaskDirs, g.scan.Excluded...)
	for _, u := range g.scan.Unreadable {
		if u.Rel != "." && u.Rel != "" {
			t.MaskDirs = append(t.MaskDirs, u.Rel)
		}
	}
	if covered {
		// A mask falls when the folder above it is renamed, so those are pinned too. In an overlay no folder of the host's
		// can be renamed.
		t.Pins = append(t.Pins, ancestors(t.Protected)...)
		t.Pins = append(t.Pins, ancestors(t.Masks)...)
		t.Pins = append(t.Pins, ancestors(t.MaskDirs)...)
	}
	for _, list := range []*[]string{&t.Pins, &t.Protected, &t.Masks, &t.MaskDirs} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	g.dropCovered()
	g.index()
	return nil
}

// dropCovered removes covers that lie inside a masked folder, where nothing can be reached, and
// files in a folder that is protected as a whole, which is read-only already.
func (g *guardedTree) dropCovered() {
	t := &g.tree
	masked := func(rel string) bool { return below(rel, t.MaskDirs) }
	protected := func(rel string) bool { return below(rel, t.Protected) }
	t.Pins = slices.DeleteFunc(t.Pins, masked)
	t.Pins = slices.DeleteFunc(t.Pins, func(rel string) bool {
		return protected(rel) || slices.Contains(t.MaskDirs, rel) || slices.Contains(t.Protected, rel)
	})
	t.Protected = slices.DeleteFunc(t.Protected, func(rel string) bool { return masked(rel) || protected(rel) })
	t.Masks = slices.DeleteFunc(t.Masks, masked)
	t.MaskDirs = slices.DeleteFunc(t.MaskDirs, masked)
}

// below reports whether rel lies inside one of the folders.
func below(rel string, folders []string) bool {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if _, found := slices.BinarySearch(folders, dir); found {
			return true
		}
	}
	return false
}

func (g *guardedTree) index() {
	t := g.tree
	for kind, list := range map[enforce.CoverKind][]string{
		enforce.CoverFolder: t.Pins, enforce.CoverReadOnly: t.Protected, enforce.CoverMask: append(slices.Clone(t.Masks), t.MaskDirs...),
	} {
		if kind != enforce.CoverMask && !t.Writable {
			continue
		}
		for _, rel := range list {
			g.covers[rel] = kind
		}
	}
}

func (g *guardedTree) isLifted(rel string, lifted []string) bool {
	abs := path.Join(g.tree.Path, rel)
	for _, l := range lifted {
		if abs == l || strings.HasPrefix(abs, l+"/") {
			return true
		}
	}
	return false
}

func ancestors(rels []string) []string {
	var out []string
	for _, rel := range rels {
		for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
			out = append(out, dir)
		}
	}
	return out
}

// readPinned remembers the bytes of the protected files, to compare after a window.
func (g *guardedTree) readPinned() error {
	for _, rel := range g.tree.Protected {
		if err := g.remember(rel); err != nil {
			return err
		}
	}
	if g.staged {
		return nil
	}
	for _, rel := range g.scan.Todos {
		data, _, err := g.root.ReadFile(rel, maxPinned)
		if err != nil {
			return fmt.Errorf("rebase to-do list: %w", err)
		}
		g.todos[rel] = data
	}
	return nil
}

func (g *guardedTree) remember(rel string) error {
	info, err := g.root.Lstat(rel)
	if err != nil {
		return fmt.Errorf("protected path: %w", err)
	}
	if info.Kind != workfs.Regular || info.Size > maxPinned {
		return nil
	}
	data, _, err := g.root.ReadFile(rel, maxPinned)
	if err != nil {
		return fmt.Errorf("protected path: %w", err)
	}
	g.pinned[rel] = data
	return nil
}
