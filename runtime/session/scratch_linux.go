package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"coworker/enforce"
	"coworker/enforce/probe"
	"coworker/enforce/protect"
	"coworker/runtime/treescan"
)

// scratch is the repository that the battery may attack destructively: it is covered by the same
// pins and masks and swept by the same code as the person's trees, and lies in coworker's own
// state folder. Backends without mounts have none.
type scratch struct {
	dir   string
	tree  *enforce.Tree
	guard *guardedTree
}

func (s *Session) newScratch(ctx context.Context, t *probe.Targets) (*scratch, error) {
	if s.options.Backend.Name() == enforce.Bare {
		return &scratch{}, nil
	}
	// Not in the state folder: its path would become visible inside, as the folder above a mount.
	dir := filepath.Join(s.options.Spec.HomeStore, "probe", s.id)
	sc := &scratch{dir: dir}
	for _, f := range probe.ScratchFiles(t.Secret) {
		p := filepath.Join(dir, f.Path)
		err := os.MkdirAll(filepath.Dir(p), 0o700)
		if err == nil {
			err = os.WriteFile(p, f.Data, os.FileMode(f.Mode))
		}
		if err == nil {
			err = sc.give(p, s.options.Spec.Identity)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make the scratch repository: %w", err), os.RemoveAll(dir))
		}
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(dir, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("make the scratch repository: %w", err), os.RemoveAll(dir))
	}
	// The scan finds what is to be covered, as in a person's tree.
	tree := enforce.Tree{Path: dir, Writable: true, Device: st.Dev, Inode: st.Ino}
	guarded, err := guardTree(ctx, tree, treescan.Config{NoMarks: s.options.OneCommand}, namedPaths{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("scan the scratch repository: %w", err), os.RemoveAll(dir))
	}
	sc.guard, sc.tree = guarded, &guarded.tree
	t.Scratch = dir
	return sc, nil
}

// sweep takes away what the battery planted, by the code that does it in a person's tree.
func (sc *scratch) sweep(ctx context.Context, g *guard) error {
	f, err := sc.guard.watcher.Sweep(ctx)
	if err != nil {
		return err
	}
	items, err := g.inspector(sc.guard).Apply(ctx, f.Protected)
	for _, it := range items {
		err = errors.Join(err, g.store.Drop(it.ID))
	}
	return err
}

// give hands a new file and its folders to the session's owner, for sessions that root runs for
// somebody else.
func (sc *scratch) give(p string, id enforce.Identity) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for ; len(p) >= len(sc.dir); p = path.Dir(p) {
		if err := os.Lchown(p, id.UID, id.GID); err != nil {
			return err
		}
	}
	return nil
}

// judge sweeps the scratch repository as a tree of a person is swept, and turns the attempts on
// absent names from leaked into swept where none of the names is left. Then the repository
// leaves the cell: it is for probes only.
func (sc *scratch) judge(ctx context.Context, probes []enforce.Probe, s *Session) ([]enforce.Probe, error) {
	if sc.tree == nil {
		return probes, nil
	}
	if err := sc.sweep(ctx, s.guard); err != nil {
		return nil, fmt.Errorf("sweep the scratch repository: %w", err)
	}
	for _, a := range probe.AbsentAttempts() {
		for i := range probes {
			if probes[i].Name == a.Name && probes[i].Got == enforce.Leaked && sc.gone(a.Paths) {
				probes[i].Got, probes[i].Detail = enforce.Swept, "created inside, gone after the sweep"
			}
		}
	}
	return probes, s.cell.Cover(sc.dir, "", enforce.CoverDetach)
}

// gone reports whether none of the protected names among the paths exists. A folder that is only
// the parent of one (.vscode) may stay.
func (sc *scratch) gone(paths []string) bool {
	for _, p := range paths {
		if _, protected := protect.Match(p, false); !protected {
			continue
		}
		if _, err := os.Lstat(filepath.Join(sc.dir, p)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

func (sc *scratch) close() error {
	if sc.dir == "" {
		return nil
	}
	var err error
	if sc.guard != nil {
		err = sc.guard.close()
	}
	return errors.Join(err, os.RemoveAll(sc.dir))
}
