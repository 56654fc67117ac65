// Package paths says where Coworker keeps its files. It turns the environment
// into three absolute folders (config, state, cache) and makes them safely.
//
// Everything outside the walls may import it. It must not grow knowledge of
// what is inside the folders: each owner of a file names it there.
package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Admin is the folder of the machine's administrator. It is read only by
// Coworker and is not moved by COWORKER_HOME, or a user could shed its rules.
const Admin = "/etc/coworker"

// ErrUnsafe marks a folder that someone else could change or redirect.
var ErrUnsafe = errors.New("folder is not private to this user")

// Dirs are the folders of one user, absolute and clean.
type Dirs struct {
	Config string // config.toml, policy.toml: written by the person
	State  string // coworker.db, keys, held files: lost only on purpose
	Cache  string // cell homes and caches: may be deleted at any time

	root string // COWORKER_HOME, if it was set
}

// Resolve computes the folders from the environment and the home folder, by
// the XDG Base Directory Specification. COWORKER_HOME moves all of them.
// A relative value is refused: the specification calls it invalid, and a
// folder that depends on the working directory is one a repository can supply.
func Resolve(getenv func(string) string, home string) (Dirs, error) {
	if root := getenv("COWORKER_HOME"); root != "" {
		root, err := absolute("COWORKER_HOME", root)
		if err != nil {
			return Dirs{}, err
		}
		return Dirs{
			Config: filepath.Join(root, "config"),
			State:  filepath.Join(root, "state"),
			Cache:  filepath.Join(root, "cache"),
			root:   root,
		}, nil
	}
	var d Dirs
	for _, v := range []struct {
		name, fallback string
		to             *string
	}{
		{"XDG_CONFIG_HOME", ".config", &d.Config},
		{"XDG_STATE_HOME", filepath.Join(".local", "state"), &d.State},
		{"XDG_CACHE_HOME", ".cache", &d.Cache},
	} {
		name, value := v.name, getenv(v.name)
		if value == "" {
			base, err := absolute("home folder", home)
			if err != nil {
				return Dirs{}, err
			}
			name, value = "home folder", filepath.Join(base, v.fallback)
		}
		base, err := absolute(name, value)
		if err != nil {
			return Dirs{}, err
		}
		*v.to = filepath.Join(base, "coworker")
	}
	return d, nil
}

func absolute(name, value string) (string, error) {
	switch {
	case value == "":
		return "", fmt.Errorf("%s is not set", name)
	case strings.ContainsRune(value, 0):
		return "", fmt.Errorf("%s %q holds a NUL byte", name, value)
	case !filepath.IsAbs(value):
		return "", fmt.Errorf("%s %q is not an absolute path", name, value)
	}
	return filepath.Clean(value), nil
}

// Make creates the missing folders with mode 0700 and checks the ones that
// exist: each must be a real directory (no symbolic link) that belongs to this
// user and that nobody else can write to. A mode that merely lets others read
// is left alone: files are created 0600.
func (d Dirs) Make() error {
	for _, dir := range []string{d.root, d.Config, d.State, d.Cache} {
		if dir == "" {
			continue
		}
		if err := makePrivate(dir); err != nil {
			return err
		}
	}
	return nil
}

// Check is Make without the making: it reports the first folder that exists
// and is unsafe.
func (d Dirs) Check() error {
	for _, dir := range []string{d.root, d.Config, d.State, d.Cache} {
		if dir == "" {
			continue
		}
		if err := checkPrivate(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	// The check runs on the result whoever made it, so a folder planted
	// between the two calls is judged like one that was always there.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkPrivate(dir)
}

func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s: %w: it is a symbolic link", dir, ErrUnsafe)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w: it is not a directory", dir, ErrUnsafe)
	}
	return checkOwner(dir, info)
}
