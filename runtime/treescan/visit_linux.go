package treescan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"coworker/enforce/hide"
	"coworker/enforce/protect"
	"coworker/platform/workfs"
)

// visitor is one worker's part of a walk.
type visitor struct {
	*walk
	buf   []byte
	found Result
	weak  func(rel string, info workfs.Info) // told of names that need content and have none that is secret yet
}

// below is a folder to enter after its parent was read to the end: the buffer is shared.
type below struct {
	name  string
	state protect.State
	rule  *protect.Rule
}

// visit reads one folder and everything below it. It closes dir.
func (v *visitor) visit(ctx context.Context, dir *workfs.Dir, n *node) error {
	defer dir.Close()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	walkable, err := v.identify(dir, n)
	if err != nil {
		return v.gone(n, err)
	}
	if !walkable {
		return nil
	}
	// Marked before it is read: a name made after the reading is an event.
	if v.mark != nil {
		if err := v.mark(dir, n); err != nil {
			return v.gone(n, err)
		}
	}
	subs, err := v.read(dir, n)
	if err != nil {
		return err
	}
	for _, s := range subs {
		if err := v.enter(ctx, dir, n, s); err != nil {
			return err
		}
	}
	return nil
}

// gone passes over a folder that was removed after it was opened: there is nothing in it, and nothing can come into it.
func (v *visitor) gone(n *node, err error) error {
	if n.parent != nil && errors.Is(err, syscall.ENOENT) {
		v.found.Raced++
		return nil
	}
	return v.blocked(n, err)
}

// identify notes where a folder is. Another mount is reported and walked like the rest, since a recursive bind takes it
// along; only the kernel's own file systems are not entered.
func (v *visitor) identify(dir *workfs.Dir, n *node) (walkable bool, err error) {
	n.mount, n.ino, err = dir.Mount()
	if err != nil || n.parent == nil || n.parent.mount == n.mount {
		return err == nil, err
	}
	v.found.Mounts = append(v.found.Mounts, n.rel())
	synthetic, err := dir.Synthetic()
	return !synthetic && err == nil, err
}

// read classifies every name of one folder. Whether the folder is itself a repository shows only at the end; then the
// names are judged again by the repository's rules.
func (v *visitor) read(dir *workfs.Dir, n *node) ([]below, error) {
	before := v.found
	p := page{visitor: v, dir: dir, node: n}
	err := p.all()
	if state := n.state.AsGitDir(); err == nil && n.layout.GitDir() && state != n.state {
		n.state = state
		v.found = before
		v.found.Repositories = append(v.found.Repositories, Repository{Rel: n.rel(), Bare: true})
		p = page{visitor: v, dir: dir, node: n}
		err = p.all()
	}
	var limit *LimitError
	if err != nil && !errors.As(err, &limit) {
		err = v.gone(n, err)
	}
	if !n.read {
		n.read = true
		v.found.Entries += p.count
		v.found.Folders++
	}
	return p.subs, err
}

// page is one reading of one folder.
type page struct {
	*visitor
	dir     *workfs.Dir
	node    *node
	subs    []below
	unknown []string
	count   int
	sampled bool
}

func (p *page) all() error {
	err := p.dir.Each(p.buf, func(name []byte, kind workfs.Kind, _ uint64) error {
		p.count++
		if kind == workfs.Unknown {
			p.unknown = append(p.unknown, string(name))
			return nil
		}
		return p.entry(string(name), kind)
	})
	if err != nil {
		return err
	}
	for _, name := range p.unknown {
		info, err := p.dir.Lstat(name)
		if err != nil {
			continue
		}
		if err := p.entry(name, info.Kind); err != nil {
			return err
		}
	}
	return p.spend()
}

// spend counts a folder's entries at once; a folder of millions of names is stopped while it is read.
func (p *page) spend() error {
	if p.node.read {
		return nil
	}
	if p.node.top != nil {
		p.node.top.Add(int64(p.count))
	}
	if p.entries.Add(int64(p.count)) > int64(p.cfg.MaxEntries) {
		return p.limit("entries", p.cfg.MaxEntries, p.node)
	}
	return nil
}

// entry judges one name. It is the hot path: an ordinary file costs no system call and no allocation.
func (p *page) entry(name string, kind workfs.Kind) error {
	if p.count > p.cfg.MaxEntries {
		return p.limit("entries", p.cfg.MaxEntries, p.node)
	}
	n := p.node
	rule, state := n.state.Enter(name, kind == workfs.Directory)
	n.layout.Add(name)
	if rule == nil && kind == workfs.Symlink {
		rule = n.state.Redirects(name)
	}
	if rule != nil {
		p.protected(name, kind, rule)
	}
	switch kind {
	case workfs.Directory:
		p.subs = append(p.subs, below{name, state, rule})
		if n.state != protect.GitDir && state == protect.GitDir {
			p.found.Repositories = append(p.found.Repositories, Repository{Rel: workfs.Join(n.rel(), name)})
		}
		return nil
	case workfs.Socket:
		p.found.Sockets = append(p.found.Sockets, p.path(name, kind))
		return nil
	}
	p.secret(name, kind)
	if kind == workfs.Regular {
		p.links(name)
	}
	return nil
}

func (p *page) path(name string, kind workfs.Kind) Path {
	f := Path{Rel: workfs.Join(p.node.rel(), name), Kind: kind}
	if info, err := p.dir.Lstat(name); err == nil {
		f.Kind, f.Dev, f.Ino, f.Nlink, f.Change = info.Kind, info.Dev, info.Ino, info.Nlink, info.Change.UnixNano()
	}
	return f
}

func (p *page) protected(name string, kind workfs.Kind, rule *protect.Rule) {
	if rule.AtEnd {
		p.found.Todos = append(p.found.Todos, workfs.Join(p.node.rel(), name))
		return
	}
	f := Protected{Path: p.path(name, kind), Rule: *rule}
	p.found.Protected = append(p.found.Protected, f)
	if rule.Check == protect.HoldGitfile && kind == workfs.Regular {
		p.gitfile(name, f.Rel)
	}
}

// maxGitfile bounds a .git file: one line with one path.
const maxGitfile = 8 << 10

func (p *page) gitfile(name, rel string) {
	head, _, err := p.dir.ReadHead(name, maxGitfile)
	if err != nil {
		return
	}
	target, ok := strings.CutPrefix(string(head), "gitdir:")
	if !ok {
		return
	}
	target = strings.Trim(target, " \t\r\n")
	if !path.IsAbs(target) {
		target = path.Join(p.root.Name(), path.Dir(rel), target)
	}
	target = path.Clean(target)
	outside := !strings.HasPrefix(target, strings.TrimSuffix(path.Clean(p.root.Name()), "/")+"/")
	p.found.Repositories = append(p.found.Repositories, Repository{Rel: rel, Gitdir: target, Outside: outside})
}

func (p *page) secret(name string, kind workfs.Kind) {
	verdict, why := hide.Name(p.node.name, name)
	if verdict == hide.Visible {
		return
	}
	if verdict == hide.NeedsContent && kind == workfs.Regular {
		head, info, err := p.dir.ReadHead(name, hide.HeadBytes)
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, workfs.ErrKind):
			return // gone, or something else by now, which the next event tells
		case err != nil:
			why += "; it could not be read" // its owner can change the mode, so it is a secret until shown otherwise
		case !hide.ByContent(name, head):
			if p.weak != nil {
				p.weak(workfs.Join(p.node.rel(), name), info)
			}
			return
		}
	}
	if verdict == hide.NeedsContent && kind != workfs.Regular {
		return
	}
	s := Secret{Path: p.path(name, kind), Why: why}
	if kind == workfs.Symlink {
		s.Target, _ = p.dir.Readlink(name)
	}
	p.found.Secrets = append(p.found.Secrets, s)
}

// links counts hard links into shared package stores, and notes files inside protected folders that have another name.
func (p *page) links(name string) {
	guarded := p.node.state == protect.Inside
	if !guarded && !p.cfg.CountLinks && (!p.node.store || p.sampled) {
		return
	}
	info, err := p.dir.Lstat(name)
	if err != nil || info.Nlink < 2 {
		p.sampled = true
		return
	}
	if p.node.store && !p.sampled {
		p.found.SharedFolders++
	}
	p.sampled = true
	if guarded {
		p.found.Links = append(p.found.Links, Links{Rel: workfs.Join(p.node.rel(), name)})
		return
	}
	p.found.SharedFiles++
}

// enter opens one folder and visits it, or gives it to an idle worker.
func (v *visitor) enter(ctx context.Context, dir *workfs.Dir, n *node, s below) error {
	c := n.child(s.name, s.state, s.rule)
	if n.parent == nil {
		v.mu.Lock()
		v.tops = append(v.tops, c)
		v.mu.Unlock()
	}
	if len(v.exclude) > 0 && v.exclude[c.rel()] {
		v.found.Excluded = append(v.found.Excluded, c.rel())
		return nil
	}
	if c.depth > v.cfg.MaxDepth {
		return v.limit("depth", v.cfg.MaxDepth, c)
	}
	sub, err := dir.OpenDir(s.name)
	if err == nil && v.cfg.As != nil {
		if err = v.cfg.As.list(sub); err != nil {
			sub.Close()
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		v.found.Raced++
		return nil
	case errors.Is(err, fs.ErrPermission):
		return v.unreadable(dir, c)
	default:
		return v.blocked(c, err)
	}
	if v.jobs == nil {
		return v.visit(ctx, sub, c)
	}
	v.pending.Add(1)
	select {
	case v.jobs <- job{sub, c}:
		return nil
	default:
		v.pending.Done()
		return v.visit(ctx, sub, c)
	}
}

// list reports fs.ErrPermission if the reader may not list a folder, by its mode alone: access lists
// are not asked, so a folder may count as unreadable that is not, which hides more, never less.
func (r *Reader) list(dir *workfs.Dir) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	need := fs.FileMode(0o005)
	switch {
	case info.UID == r.UID:
		need = 0o500
	case info.GID == r.GID:
		need = 0o050
	}
	if info.Mode&need != need {
		return fs.ErrPermission
	}
	return nil
}

func (v *visitor) unreadable(parent *workfs.Dir, n *node) error {
	u := Unreadable{Rel: n.rel()}
	info, err := parent.Lstat(n.name)
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("scan of %s: lstat %q: %w", v.root.Name(), shorten(u.Rel), err)
	}
	u.Mode, u.UID = info.Mode, info.UID
	v.found.Unreadable = append(v.found.Unreadable, u)
	return nil
}
