package session

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/platform/workfs"
)

// maxHomeNames bounds the names at the top of a private home.
const maxHomeNames = 10_000

// fillHome does for bare what the keeper does with mounts: a home in which nothing but the named
// folders is older than the session, and the environment that leads there.
func (s *Session) fillHome(store *workfs.Root) error {
	spec := &s.options.Spec
	if err := makeFolders(store, "home", spec.Identity); err != nil {
		return err
	}
	names, err := store.ReadDir("home", maxHomeNames)
	if err != nil {
		return err
	}
	for _, n := range names {
		if keepsHomeDir(n.Name, spec.HomeDirs) {
			continue
		}
		if err := store.RemoveAll(path.Join("home", n.Name), workfs.DefaultBounds); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, f := range spec.HomeFiles {
		if err := writeHomeFile(store, f, spec.Identity); err != nil {
			return err
		}
	}
	spec.Env = homeEnvironment(spec.Env, *spec)
	return nil
}

// keepsHomeDir reports whether a name at the top of the home is, or holds, a folder that persists.
func keepsHomeDir(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return d == name || strings.HasPrefix(d, name+"/") })
}

func writeHomeFile(store *workfs.Root, f enforce.File, id enforce.Identity) error {
	rel := path.Join("home", f.Path)
	if err := makeFolders(store, path.Dir(rel), id); err != nil {
		return err
	}
	if err := store.WriteFileAtomic(rel, f.Data, fs.FileMode(f.Mode)); err != nil {
		return err
	}
	if os.Geteuid() == 0 && id.UID != 0 {
		return store.Chown(rel, id.UID, id.GID)
	}
	return nil
}

// homeEnvironment replaces the real home and what is below it by the private one, in every value
// and every element of a search path. Toolchains and trees stay: they are shown at their own path.
func homeEnvironment(env []string, spec enforce.Spec) []string {
	home, private := spec.Identity.Home, spec.PrivateHome(enforce.Bare)
	out := make([]string, len(env))
	for i, e := range env {
		name, value, _ := strings.Cut(e, "=")
		parts := strings.Split(value, ":")
		for j, p := range parts {
			if (p == home || strings.HasPrefix(p, home+"/")) && !shown(p, spec) {
				parts[j] = private + strings.TrimPrefix(p, home)
			}
		}
		out[i] = name + "=" + strings.Join(parts, ":")
	}
	return out
}

// shown reports whether a path is visible as a toolchain or a tree, or lies in one.
func shown(p string, spec enforce.Spec) bool {
	within := func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	return slices.ContainsFunc(spec.Toolchains, within) ||
		slices.ContainsFunc(spec.Trees, func(t enforce.Tree) bool { return within(t.Path) })
}
