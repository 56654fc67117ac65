package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/runtime/held"
	"coworker/runtime/treescan"
)

// guard keeps the covers of a session's trees in place while it lives: it sweeps names that
// appear, and puts back pins and masks that fall off because the host replaced a file.
type guard struct {
	session *Session
	trees   []*guardedTree
	store   *held.Store

	mu    sync.Mutex // one freeze at a time: a sweep or the repair of a window
	dead  bool       // the cell has ended: covers are of no use any more
	swept bool       // the last sweep came to its end
	live  bool       // commands may have run
	items []held.Item
	stop  *os.File // closing it ends the watch
	wake  *os.File
	watch sync.WaitGroup
}

// scanTrees looks at every tree of the Spec before anything starts, and completes the Spec with
// what it found.
func (s *Session) scanTrees(ctx context.Context) (err error) {
	g := s.guard
	if g.store, err = held.Open(s.options.StateDir); err != nil {
		return fmt.Errorf("open the folder of held files: %w", err)
	}
	if err := expand(&s.options.Spec); err != nil {
		return err
	}
	if err := s.checkStaging(); err != nil {
		return err
	}
	for i, t := range s.options.Spec.Trees {
		cfg := s.options.Scan
		cfg.NoMarks = cfg.NoMarks || s.options.OneCommand
		if os.Geteuid() == 0 {
			cfg.As = &treescan.Reader{UID: uint32(s.options.Spec.Identity.UID), GID: uint32(s.options.Spec.Identity.GID)}
		}
		cfg.Exclude = belowTree(t.Path, s.options.Exclude)
		tree, err := guardTree(ctx, t, cfg, namedPaths{s.options.Lifted, s.options.Shown}, s.options.Staged && t.Writable)
		if err != nil {
			return &ScanError{Tree: t.Path, Err: err}
		}
		g.trees = append(g.trees, tree)
		s.options.Spec.Trees[i] = tree.tree
	}
	s.addGitIgnore()
	return s.openStage(ctx)
}

// belowTree gives the excluded folders that lie in a tree, relative to it.
func belowTree(tree string, exclude []string) []string {
	var out []string
	for _, e := range exclude {
		if !path.IsAbs(e) {
			out = append(out, e)
		} else if rel, ok := relativeTo(tree, e); ok {
			out = append(out, rel)
		}
	}
	return out
}

func (g *guard) close() error {
	g.endWatch()
	var errs []error
	for _, t := range g.trees {
		errs = append(errs, t.close())
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	return errors.Join(errs...)
}

// inspector applies the content rules to one tree.
func (g *guard) inspector(t *guardedTree) held.Inspector {
	return held.Inspector{Store: g.store, Root: t.root, Session: g.session.id}
}

// afterCall sweeps when a command has ended. With nothing new in any tree it costs one read of
// each notification queue.
func (g *guard) afterCall(ctx context.Context) error {
	if g.session.options.OneCommand {
		return nil // the last sweep follows at once, with everything inside dead
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.trees {
		if t.watcher == nil {
			continue
		}
		if t.staged {
			if err := g.maskStaged(ctx, t); err != nil {
				return g.lostWall(fmt.Errorf("look for secrets in %q: %w", t.tree.Path, err))
			}
			continue
		}
		f, err := g.sweep(ctx, t)
		if err != nil {
			return g.lostWall(fmt.Errorf("sweep %q: %w", t.tree.Path, err))
		}
		if f.Empty() {
			continue
		}
		if err := g.whileFrozen(func() error { return g.settle(ctx, t, f) }); err != nil {
			return g.lostWall(fmt.Errorf("sweep %q: %w", t.tree.Path, err))
		}
	}
	return nil
}

// lostWall ends the session: a sweep that cannot be finished leaves a wall in doubt.
func (g *guard) lostWall(err error) error {
	g.session.fail(err)
	return err
}

// maxPassesSettle bounds the passes of one sweep. Each can bring to light what a folder without
// rights hid.
const maxPassesSettle = 32

// settle acts on findings until a sweep finds nothing more. Nothing inside runs meanwhile.
func (g *guard) settle(ctx context.Context, t *guardedTree, f *treescan.Findings) error {
	for range maxPassesSettle {
		if err := g.act(ctx, t, f); err != nil {
			return err
		}
		var err error
		if f, err = g.sweep(ctx, t); err != nil {
			return err
		}
		if f.Empty() {
			return nil
		}
	}
	// Folders without rights inside folders without rights, as an attack would make them: whole.
	return g.holdUnseen(ctx, t, f)
}

// sweep looks for what is new. A folder that is too deep to be looked at was made inside, because
// the first scan went through: it is held as a whole.
func (g *guard) sweep(ctx context.Context, t *guardedTree) (*treescan.Findings, error) {
	for range maxPassesSettle {
		f, err := t.watcher.Sweep(ctx)
		var limit *treescan.LimitError
		if !errors.As(err, &limit) || limit.What != "depth" {
			return f, err
		}
		if err := g.holdFolder(ctx, t, limit.At, fmt.Sprintf("it lies more than %d folders deep, where nobody looks", limit.Max)); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("folders that are too deep to be looked at, in every pass")
}

// holdUnseen holds folders that still cannot be listed.
func (g *guard) holdUnseen(ctx context.Context, t *guardedTree, f *treescan.Findings) error {
	unseen := g.madeInside(f.Unreadable)
	if len(unseen) == 0 {
		return errors.New("new findings in every pass while nothing inside could run; something outside keeps writing protected names")
	}
	for _, u := range unseen {
		if err := g.holdFolder(ctx, t, u.Rel, "cannot be listed, so nobody knows what is in it"); err != nil {
			return err
		}
	}
	last, err := g.sweep(ctx, t)
	if err == nil && !last.Empty() {
		err = errors.New("findings are left after the last pass")
	}
	return err
}

// madeInside leaves out folders of other users: nothing inside can have made them or look into them.
func (g *guard) madeInside(list []treescan.Unreadable) []treescan.Unreadable {
	uid := uint32(g.session.options.Spec.Identity.UID)
	return slices.DeleteFunc(slices.Clone(list), func(u treescan.Unreadable) bool { return u.UID != uid })
}

func (g *guard) holdFolder(ctx context.Context, t *guardedTree, rel, reason string) error {
	item, err := g.store.Hold(ctx, held.Request{Root: t.root, Rel: rel, Session: g.session.id, Reason: reason, Rule: "sweep"})
	if err != nil {
		return err
	}
	t.watcher.Forget(rel)
	return g.tell(ctx, t, []held.Item{item})
}

func (g *guard) act(ctx context.Context, t *guardedTree, f *treescan.Findings) error {
	// Rights were taken away from a folder inside: it is given back to its owner to list, and the
	// next pass looks into it.
	if err := g.inspector(t).Reopen(g.madeInside(f.Unreadable)); err != nil {
		return err
	}
	found := f.Protected[:0:0]
	for _, p := range f.Protected {
		if !t.isLifted(p.Rel, g.session.options.Lifted) {
			found = append(found, p)
		}
	}
	for _, rel := range f.Todos {
		if _, known := t.todos[rel]; !known {
			t.todos[rel] = nil
		}
	}
	items, err := g.inspector(t).Apply(ctx, found)
	for _, it := range items {
		t.watcher.Forget(it.Rel)
	}
	if err = errors.Join(err, g.tell(ctx, t, items)); err != nil {
		return err
	}
	for _, rel := range f.Replaced {
		if kind, ok := t.covers[rel]; ok && g.canCover() {
			if err := g.repair(ctx, t, rel, kind); err != nil {
				return err
			}
		}
	}
	return g.maskNew(ctx, t, f)
}

func (g *guard) canCover() bool {
	return !g.dead && g.session.cell != nil && g.session.cell.Cover != nil
}

// maskNew masks secret names and host sockets that appeared while the session lives.
func (g *guard) maskNew(ctx context.Context, t *guardedTree, f *treescan.Findings) error {
	if !g.canCover() {
		return nil
	}
	var rels []string
	for _, s := range f.Secrets {
		if s.Target == "" {
			rels = append(rels, s.Rel)
		}
	}
	own := g.session.ownSockets()
	for _, p := range f.Sockets {
		if !own[path.Join(t.tree.Path, p.Rel)] {
			rels = append(rels, p.Rel)
		}
	}
	for _, rel := range rels {
		if err := g.session.cell.Cover(t.tree.Path, rel, enforce.CoverMask); err != nil {
			if errors.Is(err, os.ErrNotExist) || goneOutside(t, rel) {
				continue
			}
			return err
		}
		t.covers[rel] = enforce.CoverMask
		row := Event{Stage: "sweep", Status: "masked", Resource: path.Join(t.tree.Path, rel), Reason: "a secret name or host socket appeared; it may have been read before it was masked"}
		if err := g.session.record(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

func goneOutside(t *guardedTree, rel string) bool {
	_, err := t.root.Lstat(rel)
	return errors.Is(err, os.ErrNotExist)
}

// tell records held files and tells the person.
func (g *guard) tell(ctx context.Context, t *guardedTree, items []held.Item) error {
	if len(items) == 0 {
		return nil
	}
	var rows []Event
	for _, it := range items {
		rows = append(rows, Event{
			Stage: "sweep", Status: "held", Resource: path.Join(t.tree.Path, it.Rel),
			Reason: it.Reason, Args: []string{it.ID, it.Rule}, Result: it.Digest,
		})
		g.session.options.Notify(Notice{
			Text: fmt.Sprintf("held %q: %s", shorten(path.Join(t.tree.Path, it.Rel)), it.Reason),
			Hint: "coworker held keep " + it.ID + " puts it back; coworker held drop " + it.ID + " deletes it",
		})
	}
	g.items = append(g.items, items...)
	return g.session.record(ctx, rows...)
}

// shorten keeps a path that was made to be long from filling a person's screen; the row has it all.
func shorten(p string) string {
	const head, tail = 120, 60
	if len(p) <= head+tail+10 {
		return p
	}
	return p[:head] + " … " + p[len(p)-tail:]
}

// Held lists what the session held back so far.
func (s *Session) Held() []held.Item {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return append([]held.Item{}, s.guard.items...)
}

// final sweeps a last time, with everything inside dead, and judges what git itself must be able
// to write while it works: rebase to-do lists.
func (g *guard) final(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
	if !g.live {
		g.swept = true
		return nil // nothing inside ever ran: what is new is the person's
	}
	var errs []error
	for _, t := range g.trees {
		if t.watcher == nil || t.staged {
			continue // what is new in a staged tree's own folder is the person's
		}
		f, err := g.sweep(ctx, t)
		if err == nil && !f.Empty() {
			err = g.settle(ctx, t, f)
		}
		if err == nil {
			err = g.judgeTodos(ctx, t)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("last sweep of %q: %w", t.tree.Path, err))
		}
	}
	g.swept = len(errs) == 0
	return errors.Join(errs...)
}

// judgeTodos holds rebase to-do lists with lines that execute, unless they are what stood there
// before the session.
func (g *guard) judgeTodos(ctx context.Context, t *guardedTree) error {
	var changed []string
	for rel := range t.todos {
		now, _, err := t.root.ReadFile(rel, maxPinned)
		if err == nil && t.todos[rel] != nil && bytes.Equal(now, t.todos[rel]) {
			continue
		}
		changed = append(changed, rel)
	}
	slices.Sort(changed)
	items, err := g.inspector(t).Todos(ctx, changed)
	return errors.Join(err, g.tell(ctx, t, items))
}

// frozenLimit is how long everything inside may take to come to rest.
const frozenLimit = 500 * time.Millisecond

// whileFrozen runs f while nothing inside runs.
func (g *guard) whileFrozen(f func() error) error {
	thaw, err := g.session.freeze(frozenLimit)
	if err != nil {
		return err
	}
	return errors.Join(f(), thaw())
}

// startWatch follows the cell's mount table until endWatch. From here on commands may run.
func (g *guard) startWatch() error {
	g.live = true
	if g.session.cell.MountInfo == nil {
		return nil
	}
	var err error
	if g.wake, g.stop, err = os.Pipe(); err != nil {
		return fmt.Errorf("pipe to end the watch: %w", err)
	}
	// What fell off while the session was made has given its event already.
	if err := g.window(); err != nil {
		return err
	}
	g.watch.Go(g.follow)
	return nil
}

func (g *guard) endWatch() {
	if g.stop == nil {
		return
	}
	g.stop.Close()
	g.watch.Wait()
	g.wake.Close()
	g.stop = nil
}

// follow waits for changes of the mount table: the kernel wakes a poller with POLLERR and POLLPRI
// when a mount is attached or falls off (proc_pid_mounts(5), since Linux 2.6.30).
func (g *guard) follow() {
	for {
		fds := []unix.PollFd{
			{Fd: int32(g.session.cell.MountInfo.Fd()), Events: unix.POLLPRI},
			{Fd: int32(g.wake.Fd()), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || fds[1].Revents != 0 {
			return
		}
		if err := g.window(); err != nil {
			g.session.fail(fmt.Errorf("a wall fell and could not be put back: %w", err))
			return
		}
	}
}
