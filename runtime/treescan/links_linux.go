package treescan

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"coworker/platform/workfs"
)

// inode identifies a file over all its names.
type inode struct{ dev, ino uint64 }

// findLinks looks for other names of protected and secret files: a mount on one name covers the name, not the bytes. The
// tree is walked a second time only if such a file has more than one link; getdents gives inode numbers, so only hits cost
// a stat.
func (w *walk) findLinks(ctx context.Context, r *Result) error {
	want := map[uint64]bool{}
	first := map[inode]*Links{}
	note := func(rel string) error {
		info, err := w.root.Lstat(rel)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Kind != workfs.Regular || info.Nlink < 2 {
			return nil
		}
		id := inode{info.Dev, info.Ino}
		if first[id] == nil {
			first[id] = &Links{Rel: rel, Outside: info.Nlink}
		}
		want[info.Ino] = true
		return nil
	}
	if err := eachLinked(r, note); err != nil || len(want) == 0 {
		return err
	}
	s := &linkSearch{walk: w, want: want, first: first, buf: workfs.NewDirBuffer()}
	dir, err := w.root.OpenDir(".")
	if err != nil {
		return err
	}
	if err := s.folder(ctx, dir, ".", 0); err != nil {
		return err
	}
	r.Links = nil
	for _, l := range first {
		slices.Sort(l.Aliases)
		l.Aliases = slices.DeleteFunc(l.Aliases, func(a string) bool { return a == l.Rel })
		l.Outside -= min(l.Outside, 1+uint64(len(l.Aliases)))
		r.Links = append(r.Links, *l)
	}
	r.Links = unique(r.Links, func(l Links) string { return l.Rel })
	return nil
}

// eachLinked calls f for every finding whose link count was over one.
func eachLinked(r *Result, f func(rel string) error) error {
	var rels []string
	for _, p := range r.Protected {
		if p.Kind == workfs.Regular && p.Nlink > 1 {
			rels = append(rels, p.Rel)
		}
	}
	for _, s := range r.Secrets {
		if s.Kind == workfs.Regular && s.Nlink > 1 {
			rels = append(rels, s.Rel)
		}
	}
	for _, l := range r.Links {
		rels = append(rels, l.Rel)
	}
	slices.Sort(rels)
	for _, rel := range slices.Compact(rels) {
		if err := f(rel); err != nil {
			return err
		}
	}
	return nil
}

type linkSearch struct {
	*walk
	want  map[uint64]bool
	first map[inode]*Links
	buf   []byte
}

// folder looks at one folder for known inode numbers. It closes dir. Depth and entries were bounded by the first walk; a
// tree that grew since is bounded by depth here and seen by the watcher.
func (s *linkSearch) folder(ctx context.Context, dir *workfs.Dir, rel string, depth int) error {
	defer dir.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	var subs, hits []string
	err := dir.Each(s.buf, func(name []byte, kind workfs.Kind, ino uint64) error {
		switch {
		case kind == workfs.Directory:
			subs = append(subs, string(name))
		case s.want[ino]:
			hits = append(hits, string(name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range hits {
		info, err := dir.Lstat(name)
		if l := s.first[inode{info.Dev, info.Ino}]; err == nil && l != nil {
			l.Aliases = append(l.Aliases, workfs.Join(rel, name))
		}
	}
	for _, name := range subs {
		at := workfs.Join(rel, name)
		if s.exclude[at] || depth >= s.cfg.MaxDepth {
			continue
		}
		sub, err := dir.OpenDir(name)
		if err != nil {
			continue // the first walk judged what cannot be opened
		}
		if err := s.folder(ctx, sub, at, depth+1); err != nil {
			return err
		}
	}
	return nil
}
