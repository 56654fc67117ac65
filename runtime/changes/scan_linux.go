package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"coworker/enforce/protect"
	"coworker/platform/fsuser"
	"coworker/platform/workfs"
)

const (
	maxChanges = 500_000
	maxScan    = 2_000_000 // names looked at

	overlayXattr  = "user.overlay."
	opaqueXattr   = overlayXattr + "opaque"
	redirectXattr = overlayXattr + "redirect"
	metacopyXattr = overlayXattr + "metacopy"
	whiteoutXattr = overlayXattr + "whiteout"
)

// Changes is what Apply would do. The cell must be stopped or dead.
func (st *Stage) Changes(ctx context.Context) (*Set, error) {
	set := &Set{Session: st.meta.Session, Workspace: st.meta.Workspace}
	if err := st.load(); err != nil {
		return nil, err
	}
	err := fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		for i, t := range st.trees {
			s := &scan{ctx: ctx, t: t, index: i, set: set, visited: map[string]bool{}, emitted: map[string]bool{}}
			if err := s.all(); err != nil {
				return fmt.Errorf("changes of %s: %w", t.path, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	order(set.Changes)
	return set, nil
}

// scan compares one upper folder with the host.
type scan struct {
	ctx     context.Context
	t       *tree
	index   int
	set     *Set
	names   int
	visited map[string]bool // paths of the upper folder
	emitted map[string]bool
}

// node is a folder on both sides; either may be missing.
type node struct {
	rel    string
	up     *workfs.Dir
	host   *workfs.Dir
	state  protect.State
	rule   *protect.Rule // the folder is, or is in, a protected one
	fresh  bool          // the host has no such folder
	opaque bool
	depth  int
	block  string // why nothing in here is applied
	hold   string // why no name that makes this folder a repository is applied
	names  map[string]bool
}

func (n *node) close() {
	for _, d := range [...]*workfs.Dir{n.up, n.host} {
		if d != nil {
			d.Close()
		}
	}
}

func (s *scan) all() error {
	n := &node{rel: "."}
	var err error
	if n.up, err = s.t.upper.OpenDir("."); err != nil {
		return err
	}
	if n.host, err = s.t.host.OpenDir("."); err != nil {
		n.close()
		return err
	}
	if err := s.folder(n); err != nil {
		return err
	}
	return s.vanished()
}

// folder compares the names of one folder, and closes it.
func (s *scan) folder(n *node) error {
	defer n.close()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	entries, err := s.entries(n.up)
	if err != nil {
		return err
	}
	theirs, err := s.entries(n.host)
	if err != nil {
		return err
	}
	s.layout(n, entries, theirs)
	n.names = map[string]bool{}
	for _, e := range entries {
		n.names[e.Name] = true
	}
	for _, e := range entries {
		if err := s.name(n, e.Name); err != nil {
			return err
		}
	}
	if !n.opaque {
		return nil
	}
	for _, e := range theirs { // the session removed the folder and made it anew
		if n.names[e.Name] {
			continue
		}
		if err := s.gone(n, e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) entries(d *workfs.Dir) ([]workfs.Entry, error) {
	if d == nil {
		return nil, nil
	}
	list, err := d.Entries(maxScan - s.names)
	if errors.Is(err, workfs.ErrTooBig) {
		err = fmt.Errorf("more than %d names: %w", maxScan, ErrLimit)
	}
	s.names += len(list)
	return list, err
}

// layout finds out whether git takes the folder for a repository. The names of both sides count, deleted ones too: what is
// deleted may stay because the person edited it.
func (s *scan) layout(n *node, entries, theirs []workfs.Entry) {
	var host, both protect.Layout
	for _, e := range theirs {
		host.Add(e.Name)
		both.Add(e.Name)
	}
	for _, e := range entries {
		both.Add(e.Name)
	}
	if !both.GitDir() {
		return
	}
	was := n.state
	n.state = n.state.AsGitDir()
	if n.state != was && !host.GitDir() && n.host != nil {
		n.hold = s.sleeping(n, theirs)
	}
}

// name judges one name of the upper folder.
func (s *scan) name(n *node, name string) error {
	rel := workfs.Join(n.rel, name)
	u, err := n.up.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.add(n, &Change{Rel: rel, Kind: Added, Verdict: LeftOut, Reason: "cannot be looked at: " + err.Error(), Type: "unknown"})
	}
	s.visited[rel] = true
	x, other, err := n.up.Xattrs(name)
	if err != nil {
		return s.add(n, &Change{Rel: rel, Kind: Added, Verdict: LeftOut, Reason: "its attributes cannot be read: " + err.Error(), Type: u.Kind.String()})
	}
	if _, marked := x[whiteoutXattr]; u.Whiteout() || marked && u.Kind == workfs.Regular && u.Size == 0 {
		return s.gone(n, name)
	}
	e := entry{rel: rel, name: name, info: u, x: x, other: other}
	e.host, err = hostLook(n.host, name)
	if errors.Is(err, fs.ErrPermission) {
		return s.add(n, &Change{Rel: rel, Kind: Modified, Verdict: LeftOut, Reason: "cannot be looked at on the host", Type: u.Kind.String()})
	}
	if err != nil {
		return err
	}
	if e.host != nil && s.caseTwin(n, e) {
		e.host = nil
	}
	e.rule, e.state = n.state.Enter(name, u.Kind == workfs.Directory)
	if e.rule == nil && u.Kind == workfs.Symlink {
		e.rule = n.state.Redirects(name)
	}
	switch u.Kind {
	case workfs.Directory:
		return s.dir(n, e)
	case workfs.Regular, workfs.Symlink:
		return s.file(n, e)
	}
	if s.t.seen[rel] == identity(u) {
		return nil
	}
	return s.add(n, &Change{Rel: rel, Kind: Added, Verdict: LeftOut, Reason: "a " + u.Kind.String() + " is never applied", Type: u.Kind.String(), NewMode: u.Mode})
}

// caseTwin says that what the host shows under a name is really another spelling of it, which the session deleted: a file
// system that folds case finds one under the other.
func (s *scan) caseTwin(n *node, e entry) bool {
	if _, known := s.t.base[e.rel]; known || n.names == nil {
		return false
	}
	for other := range n.names {
		if other == e.name || !strings.EqualFold(other, e.name) {
			continue
		}
		was, known := s.t.base[workfs.Join(n.rel, other)]
		if known && was.Ino == e.host.Ino {
			return true
		}
	}
	return false
}

// entry is one name of the upper folder with everything known about it.
type entry struct {
	rel, name string
	info      workfs.Info
	host      *workfs.Info
	x         map[string][]byte
	other     []string
	rule      *protect.Rule
	state     protect.State
}

func hostLook(d *workfs.Dir, name string) (*workfs.Info, error) {
	if d == nil {
		return nil, nil
	}
	info, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &info, nil
}

// wanted is what the applied file has besides content: nothing that gives it another user's rights, and nothing of the
// overlay's own.
func (e *entry) wanted() (attrs, string) {
	var left []string
	a := attrs{Mode: e.info.Mode.Perm() | e.info.Mode&fs.ModeSticky, Mtime: e.info.ModTime.UnixNano()}
	if e.info.Kind != workfs.Directory {
		a.Mode = e.info.Mode.Perm()
	}
	if extra := e.info.Mode &^ a.Mode; extra&(fs.ModeSetuid|fs.ModeSetgid) != 0 && e.info.Kind == workfs.Regular {
		left = append(left, "setuid or setgid bits")
	}
	for key, value := range e.x {
		if strings.HasPrefix(key, overlayXattr) {
			continue
		}
		if a.User == nil {
			a.User = map[string][]byte{}
		}
		a.User[key] = value
	}
	for _, key := range e.other {
		if strings.HasPrefix(key, "security.") && key != "security.selinux" || strings.HasPrefix(key, "trusted.") {
			left = append(left, "attribute "+key)
		}
	}
	slices.Sort(left)
	if len(left) == 0 {
		return a, ""
	}
	return a, "not taken over: " + strings.Join(left, ", ")
}

// add takes a change in. What only the folder above decides is decided here.
func (s *scan) add(n *node, c *Change) error {
	if len(s.set.Changes) >= maxChanges {
		return fmt.Errorf("more than %d changes: %w", maxChanges, ErrLimit)
	}
	if s.emitted[c.Rel] && c.Verdict != Held && c.Verdict != LeftOut {
		return nil
	}
	s.emitted[c.Rel] = true
	if n.block != "" {
		c.Verdict, c.Reason = LeftOut, n.block
	}
	c.Tree, c.Root = s.index, s.t.path
	if !utf8.ValidString(c.Rel) {
		c.RawRel = []byte(c.Rel)
	}
	s.set.Changes = append(s.set.Changes, *c)
	return nil
}

// vanished finds what was applied and is gone from the upper folder since: where the host had nothing when the session
// began, the overlay leaves no mark for a deleted name.
func (s *scan) vanished() error {
	var list []string
	for rel, state := range s.t.seen {
		if !s.visited[rel] && state != seenGone && !strings.HasPrefix(state, seenHeld) {
			list = append(list, rel)
		}
	}
	slices.Sort(list)
	for _, rel := range list {
		if s.emitted[rel] || s.covered(rel) {
			continue
		}
		n, name, err := s.chain(rel)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		err = s.gone(n, name)
		n.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// covered says that a folder above was already reported as removed.
func (s *scan) covered(rel string) bool {
	for i := len(rel) - 1; i > 0; i-- {
		if rel[i] == '/' && s.emitted[rel[:i]] && !s.visited[rel[:i]] {
			return true
		}
	}
	return false
}

// chain opens the host folder of a path with everything the folders above it say. It is nil where that is gone.
func (s *scan) chain(rel string) (*node, string, error) {
	n := &node{rel: "."}
	var err error
	if n.host, err = s.t.host.OpenDir("."); err != nil {
		return nil, "", err
	}
	for {
		theirs, err := s.entries(n.host)
		if err != nil {
			n.close()
			return nil, "", err
		}
		s.layout(n, nil, theirs)
		name, rest, more := strings.Cut(rel, "/")
		if !more {
			return n, name, nil
		}
		rel = rest
		c, err := s.hostChild(n, name)
		n.close()
		if c == nil || err != nil {
			return nil, "", err
		}
		n = c
	}
}

// hostChild is a folder of the host without a counterpart.
func (s *scan) hostChild(n *node, name string) (*node, error) {
	if n.depth >= maxDepth {
		return nil, nil
	}
	sub, err := n.host.OpenDir(name)
	if errors.Is(err, fs.ErrNotExist) || notFolder(err) {
		return nil, nil
	}
	c := &node{rel: workfs.Join(n.rel, name), host: sub, depth: n.depth + 1, block: n.block, rule: n.rule}
	rule, state := n.state.Enter(name, true)
	c.state = state
	if rule != nil && c.rule == nil {
		c.rule = rule
	}
	switch {
	case err != nil:
		return nil, nil // cannot be listed: nothing in it is touched
	case !s.t.hostMounted(sub):
		c.block = "on another mount than the staged folder"
	}
	return c, nil
}
