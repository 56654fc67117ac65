package wallspec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Limits of the kernel: path_resolution(7) for links, PATH_MAX in limits.h for the length.
const (
	maxLinks = 40
	maxPath  = 4096
)

var errLoop = errors.New("more than 40 symbolic links, or a loop of them")

// canonical gives the path without symbolic links, "." and "..", and what it names. The path is absolute.
func (f Files) canonical(p string) (string, Info, error) {
	if len(p) > maxPath {
		return "", Info{}, fmt.Errorf("%.40q… is longer than %d bytes", p, maxPath)
	}
	at, todo, links := "/", split(p), 0
	info, err := f.Lstat("/")
	if err != nil {
		return "", Info{}, err
	}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if !info.Mode.IsDir() {
			return "", Info{}, fmt.Errorf("%q is not a folder", at)
		}
		next := path.Join(at, name) // resolves "..": at has no links in it
		in, err := f.Lstat(next)
		if err != nil {
			return "", Info{}, err
		}
		if in.Mode&fs.ModeSymlink == 0 {
			at, info = next, in
			continue
		}
		target, err := f.Readlink(next)
		if err != nil {
			return "", Info{}, err
		}
		links++
		if links > maxLinks || len(todo) > maxPath {
			return "", Info{}, errLoop
		}
		if strings.HasPrefix(target, "/") {
			at = "/"
			if info, err = f.Lstat("/"); err != nil {
				return "", Info{}, err
			}
		}
		todo = append(split(target), todo...)
	}
	return at, info, nil
}

// split keeps ".." and drops "." and empty parts.
func split(p string) []string {
	var out []string
	for part := range strings.SplitSeq(p, "/") {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	return out
}

// within reports whether p is dir or lies below it. Both are canonical.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// below reports whether p lies strictly below dir.
func below(p, dir string) bool { return p != dir && within(p, dir) }

// relative gives the path of p in dir, which holds it.
func relative(p, dir string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
}

// ancestors lists the folders strictly between a tree and the path rel in it, outermost first.
func ancestors(rel string) []string {
	var out []string
	for i, c := range rel {
		if c == '/' {
			out = append(out, rel[:i])
		}
	}
	return out
}
