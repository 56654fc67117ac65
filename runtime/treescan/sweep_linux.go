package treescan

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"coworker/enforce/hide"
	"coworker/platform/workfs"
)

// sweep is one Sweep in progress. The Watcher's mutex is held.
type sweep struct {
	*Watcher
	walk    *walk
	out     *Findings
	touched map[string]bool // paths that had an event: the same inode number is no proof of the same file
}

// moves notes protected folders and folders above protected paths that were renamed or removed.
func (s *sweep) moves(nodes []*node) {
	for _, n := range nodes {
		if n.parent == nil {
			s.out.Moved = append(s.out.Moved, ".")
			continue
		}
		if rel := n.rel(); n.guard() != nil || s.pinned[rel] {
			s.out.Moved = append(s.out.Moved, rel)
		}
	}
	slices.Sort(s.out.Moved)
	s.out.Moved = slices.Compact(s.out.Moved)
}

func (s *sweep) folders(ctx context.Context, names map[*node]map[string]bool) error {
	v := &visitor{walk: s.walk, buf: workfs.NewDirBuffer(), weak: s.remember}
	defer func() { s.walk.total.add(&v.found) }()
	for _, n := range sortedNodes(names) {
		if err := s.folder(ctx, v, n, names[n]); err != nil {
			return err
		}
	}
	return nil
}

// folder looks at the names that had an event in one folder, and walks the new folders among them.
func (s *sweep) folder(ctx context.Context, v *visitor, n *node, names map[string]bool) error {
	dir, err := s.root.OpenDir(n.rel())
	switch {
	case err == nil:
	case gone(err):
		return nil
	case errors.Is(err, fs.ErrPermission):
		s.darken(v, n)
		return nil
	default:
		return err
	}
	_, ino, err := dir.Mount()
	if err != nil || ino != n.ino {
		dir.Close()
		return err // another folder stands there: its name had an event in the folder above
	}
	if g := n.guard(); g != nil {
		s.touched[g.rel()] = true
	}
	p := page{visitor: v, dir: dir, node: n}
	for name := range names {
		if err := s.name(&p, name); err != nil {
			dir.Close()
			return err
		}
	}
	if n.layout.GitDir() && n.state.AsGitDir() != n.state {
		// The folder became a repository: judge it again with everything below. visit closes dir.
		return v.visit(ctx, dir, n)
	}
	defer dir.Close()
	for _, b := range p.subs {
		if err := v.enter(ctx, dir, n, b); err != nil {
			return err
		}
	}
	return nil
}

// name judges one name that had an event.
func (s *sweep) name(p *page, name string) error {
	info, err := p.dir.Lstat(name)
	switch {
	case err == nil:
	case gone(err):
		return nil
	case errors.Is(err, fs.ErrPermission):
		s.darken(p.visitor, p.node)
		return nil
	default:
		return err
	}
	rel := workfs.Join(p.node.rel(), name)
	s.touched[rel] = true
	p.found.Entries++
	if info.Kind == workfs.Regular && info.Nlink > 1 {
		if known, ok := s.inodes[inode{info.Dev, info.Ino}]; ok && known != rel {
			s.out.Links = append(s.out.Links, Links{Rel: known, Aliases: []string{rel}, Outside: info.Nlink - 2})
		}
	}
	return p.entry(name, info.Kind)
}

// darken reports a folder whose events are known but whose names cannot be looked at.
func (s *sweep) darken(v *visitor, n *node) {
	u := Unreadable{Rel: n.rel()}
	if info, err := s.root.Lstat(u.Rel); err == nil {
		u.Mode, u.UID = info.Mode, info.UID
	}
	v.found.Unreadable = append(v.found.Unreadable, u)
}

// remember keeps a new name that may still become a secret.
func (s *sweep) remember(rel string, info workfs.Info) {
	if len(s.weak) < maxWeak {
		s.weak[rel] = info.Change.UnixNano()
	}
}

// reweigh reads remembered files again if they have changed.
func (s *sweep) reweigh() {
	for rel, change := range s.weak {
		info, err := s.root.Lstat(rel)
		if err != nil || info.Kind != workfs.Regular {
			delete(s.weak, rel)
			continue
		}
		if info.Change.UnixNano() == change {
			continue
		}
		s.weak[rel] = info.Change.UnixNano()
		if why, secret := s.weigh(rel); secret {
			delete(s.weak, rel)
			f := Path{Rel: rel, Kind: info.Kind, Dev: info.Dev, Ino: info.Ino, Nlink: info.Nlink, Change: info.Change.UnixNano()}
			s.walk.total.Secrets = append(s.walk.total.Secrets, Secret{Path: f, Why: why})
		}
	}
}

func (s *sweep) weigh(rel string) (string, bool) {
	f, _, err := s.root.Open(rel)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, workfs.ErrKind) {
		return "", false
	}
	if err != nil {
		return "may hold a credential; it could not be read", true
	}
	defer f.Close()
	head := make([]byte, hide.HeadBytes)
	n, err := f.ReadAt(head, 0)
	if n == 0 && err != nil {
		return "", false
	}
	return "holds a credential", hide.ByContent(rel, head[:n])
}

// finish turns everything that was seen into what is new and what was replaced.
func (s *sweep) finish(ctx context.Context) error {
	seen := &s.walk.total
	seen.finish()
	out := &s.out.Result
	out.Entries, out.Folders, out.Raced = seen.Entries, seen.Folders, seen.Raced
	replaced := map[string]bool{}
	for rel := range s.touched {
		if _, known := s.known[rel]; known {
			replaced[rel] = true
		}
	}
	for _, p := range seen.Protected {
		if s.fresh(p.Path, replaced) {
			out.Protected = append(out.Protected, p)
		}
	}
	for _, p := range seen.Secrets {
		if s.fresh(p.Path, replaced) {
			out.Secrets = append(out.Secrets, p)
		}
	}
	for _, p := range seen.Sockets {
		if s.fresh(p, replaced) {
			out.Sockets = append(out.Sockets, p)
		}
	}
	unseen := func(rel string) bool { return !s.other[rel] }
	out.Mounts = keep(seen.Mounts, unseen)
	out.Todos = keep(seen.Todos, unseen)
	out.Unreadable = keep(seen.Unreadable, func(u Unreadable) bool { return unseen(u.Rel) })
	out.Repositories = keep(seen.Repositories, func(r Repository) bool { return unseen(r.Rel) })
	s.out.Replaced = sortedKeys(replaced)
	if err := s.links(ctx, seen); err != nil {
		return err
	}
	out.finish()
	s.learn(out)
	if out.Covers() > s.walk.cfg.MaxMounts {
		return &LimitError{What: "mounts", Root: s.root.Name(), Folder: out.crowded(), Max: s.walk.cfg.MaxMounts}
	}
	return nil
}

// links looks for other names of what is new, and leaves out what was reported. A full walk has looked already.
func (s *sweep) links(ctx context.Context, seen *Result) error {
	news := &Result{Protected: s.out.Protected, Secrets: s.out.Secrets, Links: seen.Links}
	if !s.out.Full && len(news.Protected)+len(news.Secrets)+len(news.Links) > 0 {
		if err := s.walk.findLinks(ctx, news); err != nil {
			return err
		}
	}
	s.out.Links = append(s.out.Links, keep(news.Links, func(l Links) bool {
		return !s.linked[l.Rel+"\x00"+strings.Join(l.Aliases, "\x00")]
	})...)
	return nil
}

// fresh reports a path that was not known, and notes one that is no longer the same file.
func (s *sweep) fresh(p Path, replaced map[string]bool) bool {
	was, known := s.known[p.Rel]
	if !known {
		return true
	}
	now := p.identity()
	// A folder's ctime changes with every name in it, and a file's with chmod; content that changed in place is what the
	// drift watcher compares. Here only another inode is another file, or one inode number under a new birth.
	if was.dev != now.dev || was.ino != now.ino {
		replaced[p.Rel] = true
	}
	s.known[p.Rel] = now
	return false
}

func keep[T any](list []T, want func(T) bool) []T {
	return slices.DeleteFunc(list, func(t T) bool { return !want(t) })
}

func sortedKeys(m map[string]bool) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
