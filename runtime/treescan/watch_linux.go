package treescan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"coworker/platform/workfs"
)

// Findings is what a Sweep found since the last one.
type Findings struct {
	// Result holds only what is new. Its Pins are those of the new protected paths.
	Result
	// Replaced are known protected paths, secrets or sockets that are no longer the file they were, or folders of that
	// kind in which a name appeared. A cell cannot do that to a pinned path, so the host did, or a pin fell off.
	Replaced []string
	// Moved are protected folders, and folders above protected paths, that were renamed or removed.
	Moved []string

	Events int
	Full   bool   // the whole tree was walked: marks are missing or events were lost
	Reason string // why it was a full walk
}

// Empty reports that nothing was found.
func (f *Findings) Empty() bool {
	return f.Covers()+len(f.Todos)+len(f.Replaced)+len(f.Moved)+len(f.Mounts)+len(f.Repositories)+len(f.Links)+len(f.Unreadable) == 0
}

// maxWeak bounds the new files that are looked at again because they may still become secrets.
const maxWeak = 256

// Watcher keeps an inotify mark on every folder of a tree, so that a Sweep reads only folders in which a name appeared.
//
// It sees new names and renames, not writes: a file that is a secret by content only is looked at when its name appears
// and, if it was none, again whenever it has changed by a later Sweep; a file that stood there before the session and is
// overwritten in place is not seen. Methods may be called from several goroutines; Close once.
type Watcher struct {
	root *workfs.Root
	cfg  Config

	mu      sync.Mutex // guards what follows; marks.Add is called by two workers of a walk that holds it
	marks   *workfs.Marks
	lost    string // why marks is nil
	nodesMu sync.Mutex
	nodes   map[int32]*node
	known   map[string]identity
	pinned  map[string]bool // folders above protected paths
	weak    map[string]int64
	other   map[string]bool  // repositories, mounts, to-do lists and unreadable folders that were reported
	dark    map[string]bool  // folders that could not be read: tried again by every Sweep
	inodes  map[inode]string // known files, to recognise a new name of one
	linked  map[string]bool
}

// identity tells a file from one that replaced it.
type identity struct {
	dev, ino uint64
	change   int64
}

// Watch scans the tree and marks its folders on the way. Where marks run out the scan still succeeds and every Sweep is a
// full walk, which Findings say.
func Watch(ctx context.Context, root *workfs.Root, cfg Config) (*Watcher, *Result, error) {
	w := &Watcher{
		root: root, cfg: cfg, known: map[string]identity{}, pinned: map[string]bool{}, weak: map[string]int64{},
		other: map[string]bool{}, dark: map[string]bool{}, linked: map[string]bool{}, inodes: map[inode]string{},
	}
	var marks *workfs.Marks
	err := fmt.Errorf("%w: the caller asked for none", workfs.ErrNoMarks)
	if !cfg.NoMarks {
		marks, err = workfs.NewMarks()
	}
	switch {
	case errors.Is(err, workfs.ErrNoMarks):
		w.lost = err.Error()
	case err != nil:
		return nil, nil, err
	default:
		w.marks = marks
	}
	r, err := w.full(ctx)
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	w.learn(r)
	return w, r, nil
}

// Close drops the marks. A Sweep after it is a full walk.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drop("the watcher is closed")
}

func (w *Watcher) drop(reason string) error {
	if w.marks == nil {
		return nil
	}
	err := w.marks.Close()
	w.marks, w.lost = nil, reason
	return err
}

// Marked tells how many folders are marked, and why not all are if none is.
func (w *Watcher) Marked() (int, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.nodes), w.lost
}

// Forget makes a path unknown, so that it is new if it appears again: for one that was held and moved away.
func (w *Watcher) Forget(rel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for known := range w.known {
		if known == rel || (len(known) > len(rel) && known[:len(rel)] == rel && known[len(rel)] == '/') {
			delete(w.known, known)
		}
	}
}

// full walks everything; it replaces the marks' table, so folders that moved away are no longer known.
func (w *Watcher) full(ctx context.Context) (*Result, error) {
	w.nodesMu.Lock()
	w.nodes = map[int32]*node{}
	w.nodesMu.Unlock()
	walk := newWalk(w.root, w.cfg, w.marker())
	r, err := walk.whole(ctx, &node{name: "."})
	if !errors.Is(err, workfs.ErrNoMarks) {
		return r, err
	}
	if cerr := w.drop(err.Error()); cerr != nil {
		return nil, cerr
	}
	w.nodes = nil
	return newWalk(w.root, w.cfg, nil).whole(ctx, &node{name: "."})
}

// marker is what a walk calls on each folder, or nil.
func (w *Watcher) marker() func(*workfs.Dir, *node) error {
	marks := w.marks
	if marks == nil {
		return nil
	}
	return func(dir *workfs.Dir, n *node) error {
		wd, err := marks.Add(dir)
		if err != nil {
			return err
		}
		w.nodesMu.Lock()
		defer w.nodesMu.Unlock()
		w.nodes[wd] = n // the same folder under a new name keeps its mark and gets its new node
		return nil
	}
}

// learn takes a result as what is known from now on.
func (w *Watcher) learn(r *Result) {
	know := func(p Path) {
		w.known[p.Rel] = p.identity()
		if p.Kind == workfs.Regular {
			w.inodes[inode{p.Dev, p.Ino}] = p.Rel
		}
	}
	for _, p := range r.Protected {
		know(p.Path)
	}
	for _, s := range r.Secrets {
		know(s.Path)
	}
	for _, s := range r.Sockets {
		know(s)
	}
	for _, l := range r.Links {
		w.linked[l.Rel+"\x00"+strings.Join(l.Aliases, "\x00")] = true
	}
	for _, rel := range r.Pins {
		w.pinned[rel] = true
	}
	for _, repo := range r.Repositories {
		w.other[repo.Rel] = true
	}
	for _, list := range [][]string{r.Mounts, r.Todos} {
		for _, rel := range list {
			w.other[rel] = true
		}
	}
	for _, u := range r.Unreadable {
		w.other[u.Rel] = true
		w.dark[u.Rel] = true
	}
}

func (p Path) identity() identity { return identity{p.Dev, p.Ino, p.Change} }

// pendingEvents is what one reading of the queue gives.
type pendingEvents struct {
	names map[*node]map[string]bool
	moved []*node
	count int
	lost  bool
}

func (w *Watcher) events() (pendingEvents, error) {
	var p pendingEvents
	err := w.marks.Read(func(e workfs.MarkEvent) {
		p.count++
		if e.Overflow {
			p.lost = true
			return
		}
		n := w.nodes[e.Mark]
		if n == nil {
			return
		}
		if e.Ended || e.Moved {
			p.moved = append(p.moved, n)
		}
		if e.Ended {
			delete(w.nodes, e.Mark)
		}
		if e.Name == "" {
			return
		}
		if p.names == nil {
			p.names = map[*node]map[string]bool{}
		}
		if p.names[n] == nil {
			p.names[n] = map[string]bool{}
		}
		p.names[n][e.Name] = true
	})
	return p, err
}

// Sweep returns what appeared since the last one. With no event pending it costs one read(2).
func (w *Watcher) Sweep(ctx context.Context) (*Findings, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marks == nil {
		return w.sweepAll(ctx, w.lost)
	}
	p, err := w.events()
	if err != nil {
		return nil, err
	}
	reason := w.lit()
	if p.lost {
		reason = "the event queue overflowed"
	}
	if reason != "" {
		f, err := w.sweepAll(ctx, reason)
		if f != nil {
			f.Events = p.count
		}
		return f, err
	}
	f := &Findings{Events: p.count}
	if p.count == 0 && len(w.weak) == 0 {
		return f, nil
	}
	s := &sweep{Watcher: w, out: f, walk: newWalk(w.root, w.cfg, w.marker()), touched: map[string]bool{}}
	s.moves(p.moved)
	err = s.folders(ctx, p.names)
	if errors.Is(err, workfs.ErrNoMarks) {
		if cerr := w.drop(err.Error()); cerr != nil {
			return nil, cerr
		}
		w.nodes = nil
		return w.sweepAll(ctx, w.lost)
	}
	if err != nil {
		return nil, w.unread(err)
	}
	s.reweigh()
	return f, s.finish(ctx)
}

// lit tries the folders that could not be read. A cell may take its own rights on a folder away before a sweep and give
// them back after it; then there was no event that a mark could have seen.
func (w *Watcher) lit() string {
	reason := ""
	for rel := range w.dark {
		dir, err := w.root.OpenDir(rel)
		if err == nil && w.cfg.As != nil {
			err = w.cfg.As.list(dir)
		}
		if err == nil {
			_, err = dir.Lstat("x")
		}
		if dir != nil {
			dir.Close()
		}
		if errors.Is(err, fs.ErrPermission) {
			continue
		}
		delete(w.dark, rel)
		delete(w.other, rel)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			reason = "a folder became readable"
		}
	}
	return reason
}

// unread makes the next Sweep a full walk after one that stopped half-way: its events are gone from the queue.
func (w *Watcher) unread(err error) error {
	w.drop("a sweep stopped half-way: " + err.Error())
	w.nodes = nil
	return err
}

func (w *Watcher) sweepAll(ctx context.Context, reason string) (*Findings, error) {
	r, err := w.full(ctx)
	if err != nil {
		return nil, err
	}
	f := &Findings{Full: true, Reason: reason}
	s := &sweep{Watcher: w, out: f, walk: &walk{root: w.root, cfg: w.cfg.withDefaults(), total: *r}, touched: map[string]bool{}}
	return f, s.finish(ctx)
}

// gone reports errors that mean the folder is no longer where its node says. Then it was removed, or moved to a place that
// has an event of its own, or moved out of the tree.
func gone(err error) bool {
	for _, e := range []error{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sortedNodes(m map[*node]map[string]bool) []*node {
	list := make([]*node, 0, len(m))
	for n := range m {
		list = append(list, n)
	}
	// Upper folders first: a new folder's own events are then answered by the walk that found it.
	slices.SortFunc(list, func(a, b *node) int { return a.depth - b.depth })
	return list
}
