package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"coworker/enforce"
	"coworker/enforce/probe"
	"coworker/enforce/protect"
	"coworker/runtime/held"
	"coworker/runtime/treescan"
)

// scratch is the repository that the battery may attack destructively: it is covered by the same
// pins and masks and swept by the same code as the person's trees. Backends without mounts have
// none. In a staged session it is staged as well. It never lies in the state folder: the path of a mount becomes visible inside.
type scratch struct {
	base  string // the folder that is removed at the end
	stage string // a second such folder, with the layers of a staged session
	// before is what the repository looked like outside, in a staged session.
	before listing
	socket net.Listener // in the repository of a staged session, for an attempt to reach it
	tree   *enforce.Tree
	guard  *guardedTree
	store  *held.Store
}

// sharedMemory is where the scratch repository lies if it can: it lives for some milliseconds,
// and on a disk its files would be written out.
const sharedMemory = "/dev/shm"

// scratchPrefix is followed by the supervisor's pid, so that what a killed one left behind can be
// told from what is in use.
const scratchPrefix = "coworker-probe-"

func (s *Session) newScratch(ctx context.Context, t *probe.Targets) (_ *scratch, err error) {
	if s.options.Backend.Name() == enforce.Bare {
		return &scratch{}, nil
	}
	sc := &scratch{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make the scratch repository: %w", err), sc.close())
		}
	}()
	if sc.base, err = scratchFolder(s.options.Spec.HomeStore); err != nil {
		return nil, err
	}
	repo := filepath.Join(sc.base, "repo")
	for _, f := range probe.ScratchFiles(t.Secret) {
		p := filepath.Join(repo, f.Path)
		err := os.MkdirAll(filepath.Dir(p), 0o700)
		if err == nil {
			err = os.WriteFile(p, f.Data, os.FileMode(f.Mode))
		}
		if err == nil {
			err = sc.give(p, s.options.Spec.Identity)
		}
		if err != nil {
			return nil, err
		}
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(repo, &st); err != nil {
		return nil, err
	}
	if sc.store, err = held.Open(sc.base); err != nil {
		return nil, err
	}
	// The scan finds what is to be covered, as in a person's tree.
	tree := enforce.Tree{Path: repo, Writable: true, Device: st.Dev, Inode: st.Ino}
	if s.options.Staged {
		if tree.Stage, err = sc.layers(s.options.Spec); err != nil {
			return nil, err
		}
	}
	if sc.guard, err = guardTree(ctx, tree, treescan.Config{NoMarks: s.options.OneCommand}, namedPaths{}, s.options.Staged); err != nil {
		return nil, err
	}
	sc.tree = &sc.guard.tree
	t.Scratch = repo
	if s.options.Staged {
		err = sc.watchOutside(t, s.options.Spec.Identity)
	}
	return sc, err
}

// scratchFolder makes a private folder in shared memory, or beside the private home where there
// is none.
func scratchFolder(homeStore string) (string, error) {
	pattern := scratchPrefix + strconv.Itoa(os.Getpid()) + "-*"
	removeStale(sharedMemory)
	if dir, err := os.MkdirTemp(sharedMemory, pattern); err == nil {
		return dir, nil
	}
	parent := filepath.Join(homeStore, "probe")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	removeStale(parent)
	return os.MkdirTemp(parent, pattern)
}

// removeStale removes what supervisors that were killed left behind.
func removeStale(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), scratchPrefix)
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if !ok || err != nil || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		// Somebody else's cannot be removed, and in a sticky folder need not be.
		removeScratch(filepath.Join(parent, e.Name()))
	}
}

// give hands a new file and its folders to the session's owner, for sessions that root runs for
// somebody else.
func (sc *scratch) give(p string, id enforce.Identity) error {
	if os.Geteuid() != 0 || id.UID == 0 {
		return nil
	}
	for ; len(p) > len(sc.base); p = path.Dir(p) {
		if err := os.Lchown(p, id.UID, id.GID); err != nil {
			return err
		}
	}
	return os.Chmod(sc.base, 0o711) // the keeper walks through it with the owner's ids
}

// sweep takes away what the battery planted, by the code that does it in a person's tree.
func (sc *scratch) sweep(ctx context.Context, session string) error {
	f, err := sc.guard.watcher.Sweep(ctx)
	if err != nil {
		return err
	}
	in := held.Inspector{Store: sc.store, Root: sc.guard.root, Session: session}
	_, err = in.Apply(ctx, f.Protected)
	return err
}

// judge sweeps the scratch repository as a tree of a person is swept, and turns the attempts on
// absent names from leaked into swept where none of the names is left. Then the repository
// leaves the cell: it is for probes only.
func (sc *scratch) judge(ctx context.Context, probes []enforce.Probe, s *Session) ([]enforce.Probe, error) {
	if sc.tree == nil {
		return probes, nil
	}
	if sc.tree.Stage != "" {
		return sc.judgeStaged(probes), s.cell.Cover(sc.tree.Path, "", enforce.CoverDetach)
	}
	if err := sc.sweep(ctx, s.id); err != nil {
		return nil, fmt.Errorf("sweep the scratch repository: %w", err)
	}
	for _, a := range probe.AbsentAttempts() {
		for i := range probes {
			if probes[i].Name == a.Name && probes[i].Got == enforce.Leaked && sc.gone(a.Paths) {
				probes[i].Got, probes[i].Detail = enforce.Swept, "created inside, gone after the sweep"
			}
		}
	}
	return probes, s.cell.Cover(sc.tree.Path, "", enforce.CoverDetach)
}

// gone reports whether none of the protected names among the paths exists. A folder that is only
// the parent of one (.vscode) may stay.
func (sc *scratch) gone(paths []string) bool {
	for _, p := range paths {
		if _, protected := protect.Match(p, false); !protected {
			continue
		}
		if _, err := os.Lstat(filepath.Join(sc.tree.Path, p)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

func (sc *scratch) close() error {
	var errs []error
	if sc.guard != nil {
		errs = append(errs, sc.guard.close())
	}
	if sc.store != nil {
		errs = append(errs, sc.store.Close())
	}
	if sc.socket != nil {
		errs = append(errs, sc.socket.Close())
	}
	for _, dir := range []string{sc.base, sc.stage} {
		if dir != "" {
			errs = append(errs, removeScratch(dir))
		}
	}
	return errors.Join(errs...)
}
