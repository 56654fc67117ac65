package treescan

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"coworker/enforce/protect"
	"coworker/platform/workfs"
)

// workers is two: getdents of one tree gains from a second core while the first waits, and not much from a third.
const workers = 2

// Scan walks the tree once.
func Scan(ctx context.Context, root *workfs.Root, cfg Config) (*Result, error) {
	w := newWalk(root, cfg, nil)
	return w.whole(ctx, &node{name: "."})
}

// node is a folder. Paths are put together only for findings.
type node struct {
	parent *node
	name   string
	top    *atomic.Int64 // entries below the top-level folder this one is in
	rule   *protect.Rule // set on a protected folder
	mount  workfs.Mount
	ino    uint64
	depth  int
	state  protect.State
	layout protect.Layout
	store  bool // below node_modules or a virtual environment
	read   bool // entries were counted
}

func (n *node) rel() string {
	if n.parent == nil {
		return "."
	}
	parts := make([]string, 0, n.depth)
	for ; n.parent != nil; n = n.parent {
		parts = append(parts, n.name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// guard is the protected folder that n is, or is in.
func (n *node) guard() *node {
	for ; n != nil; n = n.parent {
		if n.rule != nil {
			return n
		}
	}
	return nil
}

func (n *node) child(name string, state protect.State, rule *protect.Rule) *node {
	c := &node{parent: n, name: name, state: state, rule: rule, depth: n.depth + 1, top: n.top, store: n.store}
	if n.parent == nil {
		c.top = new(atomic.Int64)
	}
	switch name {
	case "node_modules", ".venv", "venv", "site-packages", ".pnpm":
		c.store = true
	}
	return c
}

// walk is one pass over a tree or a part of it.
type walk struct {
	root    *workfs.Root
	cfg     Config
	exclude map[string]bool
	mark    func(*workfs.Dir, *node) error // nil when nothing watches

	entries atomic.Int64
	jobs    chan job
	pending sync.WaitGroup

	mu    sync.Mutex // guards what follows
	err   error
	tops  []*node
	total Result
	stop  context.CancelCauseFunc
}

type job struct {
	dir  *workfs.Dir
	node *node
}

func newWalk(root *workfs.Root, cfg Config, mark func(*workfs.Dir, *node) error) *walk {
	w := &walk{root: root, cfg: cfg.withDefaults(), exclude: map[string]bool{}, mark: mark}
	for _, rel := range cfg.Exclude {
		w.exclude[path.Clean(rel)] = true
	}
	return w
}

// whole walks everything from the root with several workers.
func (w *walk) whole(ctx context.Context, top *node) (*Result, error) {
	dir, err := w.root.OpenDir(".")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.stop = cancel
	w.jobs = make(chan job)
	var team sync.WaitGroup
	for range workers {
		team.Go(func() { w.work(ctx) })
	}
	w.pending.Add(1)
	w.jobs <- job{dir, top}
	w.pending.Wait()
	close(w.jobs)
	team.Wait()
	return w.done(ctx)
}

func (w *walk) work(ctx context.Context) {
	v := &visitor{walk: w, buf: workfs.NewDirBuffer()}
	for j := range w.jobs {
		if err := v.visit(ctx, j.dir, j.node); err != nil {
			w.fail(err)
		}
		w.pending.Done()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total.add(&v.found)
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A limit says more than the cancellation it causes in the other worker.
	if w.err == nil || errors.Is(w.err, context.Canceled) {
		w.err = err
	}
	w.stop(err)
}

func (w *walk) done(ctx context.Context) (*Result, error) {
	if w.err != nil {
		return nil, w.err
	}
	r := &w.total
	r.finish()
	if r.Covers() > w.cfg.MaxMounts {
		return nil, &LimitError{What: "mounts", Root: w.root.Name(), Folder: r.crowded(), Max: w.cfg.MaxMounts}
	}
	if err := w.findLinks(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// limit names the folder that a person would exclude: the top-level one with most entries.
func (w *walk) limit(what string, max int, at *node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, most := at, int64(-1)
	for _, t := range w.tops {
		if n := t.top.Load(); n > most {
			name, most = t, n
		}
	}
	if what == "depth" {
		for name = at; name.depth > 1; name = name.parent {
		}
	}
	return &LimitError{What: what, Root: w.root.Name(), Folder: name.rel(), At: at.rel(), Max: max}
}

// blocked is an error other than a missing right: it refuses, and says how to go on.
func (w *walk) blocked(n *node, err error) error {
	return fmt.Errorf("scan of %s: folder %q: %w (scan.exclude can leave it out)", w.root.Name(), shorten(n.rel()), err)
}
