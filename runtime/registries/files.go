package registries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// maxLinks is the kernel's bound on symbolic links in one path (path_resolution(7)).
const maxLinks = 40

var (
	errWorkspace = errors.New("lies in the workspace and does not count")
	errRelative  = errors.New("is not an absolute path and does not count")
)

// canonical follows the links of an absolute path. The last part must exist.
func (f *finder) canonical(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", errRelative
	}
	done, rest, links := "/", strings.TrimPrefix(path.Clean(p), "/"), 0
	for rest != "" {
		part, tail, _ := strings.Cut(rest, "/")
		rest = tail
		next := path.Join(done, part)
		info, err := fs.Lstat(f.host.Root, name(next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("more than %d symbolic links", maxLinks)
		}
		target, err := fs.ReadLink(f.host.Root, name(next))
		if err != nil {
			return "", err
		}
		if !path.IsAbs(target) {
			target = path.Join(done, target)
		}
		// Clean treats ".." textually, which is right for absolute parts already resolved and good enough for the rest:
		// a wrong answer is a file that does not exist or one outside the workspace that the person's link names.
		done, rest = "/", strings.TrimPrefix(path.Join(target, rest), "/")
	}
	return done, nil
}

// name is an absolute path in the form that fs.FS wants.
func name(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p != "" {
		return p
	}
	return "."
}

func (f *finder) inWorkspace(p string) bool {
	for _, w := range f.workspaces {
		if p == w || strings.HasPrefix(p, strings.TrimSuffix(w, "/")+"/") {
			return true
		}
	}
	return false
}

// resolve finds the file behind p and refuses what strangers can write.
func (f *finder) resolve(p string) (string, fs.FileInfo, error) {
	real, err := f.canonical(p)
	if err != nil {
		return "", nil, err
	}
	if f.inWorkspace(real) || f.inWorkspace(path.Clean(p)) {
		return "", nil, errWorkspace
	}
	info, err := fs.Stat(f.host.Root, name(real))
	switch {
	case err != nil:
		return "", nil, err
	case info.Mode().Perm()&0o002 != 0:
		return "", nil, errors.New("can be written by everyone and does not count")
	}
	return real, info, nil
}

// regular opens a file that resolve accepts. A FIFO is refused before it is opened, because opening waits for a writer.
func (f *finder) regular(p string, limit int64) (fs.File, fs.FileInfo, error) {
	real, info, err := f.resolve(p)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("is no regular file")
	case info.Size() > limit:
		return nil, nil, fmt.Errorf("has %d bytes, more than %d", info.Size(), limit)
	}
	file, err := f.host.Root.Open(name(real))
	return file, info, err
}

// read gives the content of a file; ok is false if there is none. Every other obstacle is a note, because the person would
// expect the settings in it to count.
func (f *finder) read(p string) (content []byte, ok bool) {
	if f.ctx.Err() != nil {
		return nil, false
	}
	file, _, err := f.regular(p, maxFile)
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(contextReader{f.ctx, file}, maxFile+1))
		err = errors.Join(err, file.Close())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil, false
	case err == nil && len(content) > maxFile:
		err = fmt.Errorf("has more than %d bytes", maxFile)
	}
	if err != nil {
		f.note(fmt.Sprintf("%s %s", f.show(p), cause(err)))
		return nil, false
	}
	return content, true
}

// cause drops the path that fs errors repeat.
func cause(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return "cannot be read: " + pathError.Err.Error()
	}
	return err.Error()
}

// contextReader ends a long read with its context.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// names lists the entries of a folder; empty if there is none. Installed versions are few.
func (f *finder) names(dir string) []string {
	const most = 256
	real, info, err := f.resolve(dir)
	if err != nil || !info.IsDir() {
		return nil
	}
	entries, err := fs.ReadDir(f.host.Root, name(real))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries[:min(len(entries), most)] {
		out = append(out, e.Name())
	}
	return out
}

// show shortens a path for a person.
func (f *finder) show(p string) string {
	if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(f.host.Home, "/")+"/"); ok {
		return "~/" + rest
	}
	return p
}

// home is a path in the home folder.
func (f *finder) home(rel string) string { return path.Join(f.host.Home, rel) }

// xdg is a path in the person's configuration folder (XDG Base Directory Specification: a relative value is invalid).
func (f *finder) xdg(rel string) string {
	if base := f.env["XDG_CONFIG_HOME"]; path.IsAbs(base) {
		return path.Join(base, rel)
	}
	return f.home(path.Join(".config", rel))
}

// xdgSystem are the places of a path in the machine's configuration folders, the most important first.
func (f *finder) xdgSystem(rel string) []string {
	dirs := f.env["XDG_CONFIG_DIRS"]
	if dirs == "" {
		dirs = "/etc/xdg"
	}
	var out []string
	for _, dir := range strings.Split(dirs, ":") {
		if path.IsAbs(dir) && len(out) < 8 {
			out = append(out, path.Join(dir, rel))
		}
	}
	return out
}

// expandHome replaces a leading ~/ as shells and most managers do.
func (f *finder) expandHome(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return f.home(rest)
	}
	return p
}

// program finds an installed program on the person's PATH: the file as named and the file behind the links.
// Entries that are relative, in a workspace
// or open to everyone do not count; others fill them.
func (f *finder) program(base string) (named, real string, ok bool) {
	for _, dir := range strings.Split(f.env["PATH"], ":") {
		if !path.IsAbs(dir) {
			continue
		}
		if _, _, err := f.resolve(dir); err != nil {
			continue
		}
		named := path.Join(dir, base)
		real, info, err := f.resolve(named)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return named, real, true
		}
	}
	return "", "", false
}
