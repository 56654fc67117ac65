package walls

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
)

// canaryVariable is in the environment of coworker and of nothing inside.
const canaryVariable = "CANARY_TOKEN"

// world is everything that attempts may attack, made by the test in one folder: the home of a person, a workspace in
// it, and things beside it.
type world struct {
	user    testuser.User
	base    string
	home    string
	work    string // the workspace
	outside string
	own     string // coworker's own folders
	canary  string // what every secret holds
	patient bool   // commands may take long: a compiler starts with an empty cache
}

const privateKey = "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"

// contents are the files of a world, relative to its base. %s is the canary. A value that starts with "-> " is a link.
var contents = map[string]string{
	"outside/file": "%s", "outside/open/file": "ordinary\n", "outside/run/": "",
	"home/.bashrc": "ordinary\n", "home/.zshrc": "", "home/.profile": "", "home/.bash_profile": "", "home/.zprofile": "", "home/.gitconfig": "",
	"home/.ssh/id_ed25519": "%s", "home/.ssh/config": "%s", "home/.ssh/authorized_keys": "", "home/.aws/credentials": "%s", "home/.kube/config": "%s",
	"home/.docker/config.json": "%s", "home/.azure/accessTokens.json": "%s", "home/.config/gcloud/credentials.db": "%s", "home/.gnupg/private": "%s",
	"home/.password-store/mail.gpg": "%s", "home/.bash_history": "%s", "home/.zsh_history": "%s", "home/.netrc": "%s", "home/.npmrc": "%s",
	"home/.sshfoo/key": "%s", "home/.awsbackup/key": "%s", "home/.local/state/coworker/canary": "%s",
	"home/code/sibling/file": "%s",
	"work/main.txt":          "ordinary\n", "work/scratch/": "", "work/link-out": "-> ../../../outside", "work/link-env": "-> .env",
	"work/.env": "TOKEN=%s\n", "work/.env.local": "TOKEN=%s\n", "work/.env.example": "TOKEN=\n", "work/nested/deep/.env": "TOKEN=%s\n",
	"work/nested/deep/er/.env.production": "TOKEN=%s\n", "work/server.key": privateKey, "work/nested/id.pem": privateKey,
	"work/public.pem": "-----BEGIN CERTIFICATE-----\n", "work/.netrc": "machine a login b password %s\n",
	"work/.aws/credentials": "[default]\naws_secret_access_key = %s\n", "work/private/note": "%s",
	"work/.git/HEAD": "ref: refs/heads/main\n", "work/.git/objects/": "", "work/.git/refs/heads/": "", "work/.git/config": "[core]\n\tbare = false\n",
	"work/.git/info/attributes": "# none\n", "work/.git/hooks/post-checkout": "#!/bin/sh\n",
	"work/.git/worktrees/side/HEAD": "ref: refs/heads/side\n", "work/.git/worktrees/side/commondir": "../..\n", "work/.git/worktrees/side/gitdir": "../../../../side/.git\n",
	"work/.git/modules/sub/HEAD": "ref: refs/heads/main\n", "work/.git/modules/sub/config": "[core]\n", "work/.git/modules/sub/objects/": "", "work/.git/modules/sub/refs/": "",
	"work/sub/.git":                          "gitdir: ../.git/modules/sub\n",
	"work/nested/deep/er/vendored/.git/HEAD": "ref: refs/heads/main\n", "work/nested/deep/er/vendored/.git/objects/": "", "work/nested/deep/er/vendored/.git/refs/": "",
	"work/nested/deep/er/vendored/.git/config": "[core]\n", "work/nested/deep/er/vendored/.git/hooks/post-checkout": "#!/bin/sh\n",
	"work/bare/HEAD": "ref: refs/heads/main\n", "work/bare/objects/": "", "work/bare/refs/": "", "work/bare/config": "[core]\n", "work/bare/hooks/post-checkout": "#!/bin/sh\n",
	"work/.mcp.json": "{}\n", "work/.envrc": "export A=%s\n", "work/.gitlab-ci.yml": "a: b\n", "work/.vscode/tasks.json": "{}\n", "work/.vscode/settings.json": "{}\n",
	"work/.vscode/launch.json": "{}\n", "work/.claude/settings.json": "{}\n", "work/.codex/config.toml": "a = 1\n", "work/.gemini/settings.json": "{}\n",
	"work/.agents/skill.md": "a\n", "work/.cursor/mcp.json": "{}\n", "work/.coworker/config.toml": "", "work/.idea/workspace.xml": "<a/>\n",
	"work/.husky/pre-commit": "true\n", "work/.devcontainer/devcontainer.json": "{}\n", "work/.github/workflows/ci.yml": "a: b\n", "work/.github/hooks/agent.json": "{}\n",
}

// newWorld makes one.
func newWorld(t testing.TB, u testuser.User) *world {
	t.Helper()
	w := emptyWorld(t, u)
	w.fill(t)
	return w
}

// emptyWorld has an empty workspace.
func emptyWorld(t testing.TB, u testuser.User) *world {
	t.Helper()
	base := u.Dir(t)
	w := &world{user: u, base: base, home: filepath.Join(base, "home"), work: filepath.Join(base, "home/code/project"),
		outside: filepath.Join(base, "outside"), own: filepath.Join(base, "own"), canary: "canary" + rand.Text()}
	settings := filepath.Join(w.own, "config")
	for _, dir := range []string{w.work, w.outside, settings} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(settings, "config.toml"), []byte("backend = \""+backend(t)+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.Own(base); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.forget(t) })
	return w
}

// forget removes the private home, which lies elsewhere if coworker runs as root.
func (w *world) forget(t testing.TB) {
	if !w.user.Root() {
		return
	}
	cmd := exec.Command(filepath.Join(built, "coworker"), "cache", "reset", "--workspace", w.work)
	cmd.Env = append(os.Environ(), "COWORKER_HOME="+w.own)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("cache reset: %v: %s", err, out)
	}
}

// fill writes the files.
func (w *world) fill(t testing.TB) {
	t.Helper()
	for name := range contents {
		w.put(t, name)
	}
	if err := os.Chmod(filepath.Join(w.outside, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := w.user.Own(w.base); err != nil {
		t.Fatal(err)
	}
}

// put writes one of the contents.
func (w *world) put(t testing.TB, name string) {
	t.Helper()
	text := contents[name]
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, w.canary)
	}
	if err := place(w.at(name), strings.HasSuffix(name, "/"), text); err != nil {
		t.Fatal(err)
	}
}

// at is where one of the contents lies.
func (w *world) at(name string) string {
	if rest, ok := strings.CutPrefix(name, "work/"); ok {
		return filepath.Join(w.work, rest)
	}
	return filepath.Join(w.base, name)
}

// restore takes away what was added and writes again what was changed.
func (w *world) restore(t testing.TB, changed []string) {
	t.Helper()
	files, folders := map[string]string{}, map[string]bool{}
	for name := range contents {
		path := w.at(name)
		files[path], folders[path] = name, strings.HasSuffix(name, "/")
		for dir := filepath.Dir(path); len(dir) >= len(w.base); dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, rel := range slices.Backward(changed) {
		path := filepath.Join(w.base, rel)
		if folders[path] || strings.HasSuffix(path, "scratch/targets.json") || strings.HasSuffix(path, "project/setuid") {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for path, name := range files {
		if _, err := os.Lstat(path); err != nil {
			w.put(t, name)
			for dir := path; dir != w.base; dir = filepath.Dir(dir) {
				if err := os.Lchown(dir, w.user.UID, w.user.GID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func place(path string, folder bool, text string) error {
	if folder {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if link, ok := strings.CutPrefix(text, "-> "); ok {
		return os.Symlink(link, path)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// addSetuid puts a set-user-id program of another user into the workspace, as root only.
func (w *world) addSetuid(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	file, owner := filepath.Join(w.work, "setuid"), 0
	if w.user.Root() {
		owner = 4243
	}
	data, err := os.ReadFile(filepath.Join(built, "attacker"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, owner, owner); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
}

// snapshot describes every name below a folder: what a person could notice. Times of access are left out.
type snapshot map[string]string

func take(t testing.TB, root string, skip ...string) snapshot {
	t.Helper()
	s := snapshot{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if slices.Contains(skip, rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		s[rel], err = describe(path, d)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func describe(path string, d fs.DirEntry) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	text := fmt.Sprintf("inode %d mode %o owner %d:%d links %d modified %d.%d", st.Ino, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
	names := make([]byte, 256)
	if n, err := unix.Llistxattr(path, names); err == nil {
		text += fmt.Sprintf(" attributes %q", names[:n])
	}
	switch d.Type() {
	case 0:
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		text += " content " + hex.EncodeToString(sum[:8])
	case fs.ModeSymlink:
		link, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		text += " to " + link
	}
	return text, nil
}

// changed lists the names that differ, sorted.
func (s snapshot) changed(now snapshot) []string {
	var out []string
	for name, was := range s {
		if now[name] != was {
			out = append(out, name)
		}
	}
	for name := range now {
		if _, ok := s[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// explain says how.
func (s snapshot) explain(now snapshot) string {
	var b bytes.Buffer
	for _, name := range s.changed(now) {
		fmt.Fprintf(&b, "  %s: was %q, is %q\n", name, s[name], now[name])
	}
	return b.String()
}

// TestSnapshotNotices shows that the comparison sees each kind of change.
func TestSnapshotNotices(t *testing.T) {
	u := testuser.Unprivileged(t)
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("b"), 0o644) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "file"), 0o600) },
		"name":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o644) },
		"gone":    func(dir string) error { return os.Remove(filepath.Join(dir, "file")) },
		"times":   func(dir string) error { return unix.Utimes(filepath.Join(dir, "file"), make([]unix.Timeval, 2)) },
		"link":    func(dir string) error { return os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "sub/hard")) },
		"xattr": func(dir string) error {
			return unix.Setxattr(filepath.Join(dir, "file"), "user.a", []byte("1"), 0)
		},
		"made and removed": func(dir string) error {
			return os.Remove(filepath.Join(dir, "sub/gone"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := u.Dir(t)
			for _, f := range []string{"file", "sub/gone"} {
				if err := place(filepath.Join(dir, f), false, "a"); err != nil {
					t.Fatal(err)
				}
			}
			before := take(t, dir)
			if diff := before.changed(take(t, dir)); len(diff) > 0 {
				t.Fatalf("nothing was changed, and %q differ", diff)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if diff := slices.Collect(maps.Keys(before)); len(before.changed(take(t, dir))) == 0 {
				t.Errorf("the change was not noticed among %q", diff)
			}
		})
	}
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
