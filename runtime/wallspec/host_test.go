package wallspec

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"coworker/platform/config"
	"coworker/platform/gitconfig"
	"coworker/platform/paths"
)

// node is a file of a made-up machine.
type node struct {
	link string
	data string
	mode fs.FileMode
	uid  int
}

type machine map[string]node

// newMachine has a person ada (uid 1000), a project, and root.
func newMachine(extra ...string) machine {
	m := machine{}
	for _, d := range []string{"/usr/bin", "/usr/local/bin", "/bin", "/etc", "/proc/1", "/dev", "/tmp", "/run", "/opt", "/root", "/boot", "/var/cache/coworker", "/etc/coworker"} {
		m.dir(d, 0)
	}
	m["/tmp"] = node{mode: fs.ModeDir | fs.ModeSticky | 0o777}
	for _, d := range []string{"/home/ada/src/proj/.git/hooks", "/home/ada/src/other", "/home/ada/.config/coworker", "/home/ada/.local/state/coworker", "/home/ada/.cache/coworker"} {
		m.dir(d, 1000)
	}
	for _, d := range []string{"/root/.config/coworker", "/root/.local/state/coworker", "/root/.cache/coworker"} {
		m.dir(d, 0)
	}
	m["/home"] = node{mode: fs.ModeDir | 0o755}
	for _, d := range extra {
		m.dir(d, 1000)
	}
	return m
}

func (m machine) dir(p string, uid int) {
	for ; p != "/"; p = path.Dir(p) {
		if _, ok := m[p]; !ok {
			m[p] = node{mode: fs.ModeDir | 0o755, uid: uid}
		}
	}
	m["/"] = node{mode: fs.ModeDir | 0o755}
}

func (m machine) file(p, data string, uid int) {
	m.dir(path.Dir(p), uid)
	m[p] = node{mode: 0o644, data: data, uid: uid}
}

func (m machine) link(p, target string) {
	m.dir(path.Dir(p), 1000)
	m[p] = node{mode: fs.ModeSymlink | 0o777, link: target, uid: 1000}
}

func (m machine) lstat(p string) (Info, error) {
	n, ok := m[p]
	if !ok {
		return Info{}, &fs.PathError{Op: "lstat", Path: p, Err: fs.ErrNotExist}
	}
	ino, _ := slices.BinarySearch(slices.Sorted(maps.Keys(m)), p)
	return Info{Mode: n.mode, Device: 1, Inode: uint64(ino), UID: n.uid, GID: n.uid}, nil
}

func (m machine) host(uid int, env ...string) Host {
	users := []User{{0, 0, "root", "root", "/root", "/bin/bash"}, {1000, 1000, "ada", "ada", "/home/ada", "/bin/bash"}, {1001, 1001, "bob", "bob", "/home/bob", "/bin/zsh"}}
	find := func(match func(User) bool) (User, bool) {
		i := slices.IndexFunc(users, match)
		if i < 0 {
			return User{}, false
		}
		return users[i], true
	}
	home := "/home/ada"
	if uid == 0 {
		home = "/root"
	}
	dirs, _ := paths.Resolve(func(string) string { return "" }, home)
	return Host{
		Files: Files{
			Lstat: m.lstat,
			Readlink: func(p string) (string, error) {
				return m[p].link, nil
			},
			ReadFile: func(p string, limit int64) ([]byte, Info, error) {
				in, err := m.lstat(p)
				if err == nil && !in.Mode.IsRegular() {
					err = fmt.Errorf("%q is not a regular file", p)
				}
				return []byte(m[p].data), in, err
			},
		},
		Environ: append([]string{"HOME=" + home, "PATH=/usr/bin:/bin"}, env...),
		Cwd:     "/home/ada/src/proj", Dirs: dirs, ConfigFile: dirs.Config + "/config.toml",
		UID: uid, GID: uid, Memory: 16 << 30, OpenFiles: 1 << 20,
		LookupUser: func(n string) (User, bool) { return find(func(u User) bool { return u.Name == n }) },
		LookupUID:  func(id int) (User, bool) { return find(func(u User) bool { return u.UID == id }) },
		Protected: func(rel string, _ bool) bool {
			return rel == ".git/hooks" || rel == ".mcp.json" || strings.HasPrefix(rel, ".git/hooks/") || rel == ".vscode/tasks.json"
		},
		Secret:   func(rel string) bool { return path.Base(rel) == ".env" },
		InertGit: gitconfig.InertGlobal,
	}
}

func mustBuild(t *testing.T, req Request, h Host) Plan {
	t.Helper()
	p, err := Build(req, h)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantError(t *testing.T, req Request, h Host, want string) *Error {
	t.Helper()
	_, err := Build(req, h)
	e, ok := err.(*Error)
	if !ok || !strings.Contains(e.Error(), want) {
		t.Fatalf("error = %v (%T), want %q", err, err, want)
	}
	if e.ExitCode() != 123 {
		t.Fatalf("exit code %d", e.ExitCode())
	}
	return e
}

func envOf(p Plan) map[string]string {
	out := map[string]string{}
	for _, e := range p.Spec.Env {
		n, v, _ := strings.Cut(e, "=")
		out[n] = v
	}
	return out
}

func listPaths(s ...string) []config.Path {
	var out []config.Path
	for _, x := range s {
		out = append(out, config.Path(x))
	}
	return out
}
