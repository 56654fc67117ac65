package treescan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"coworker/platform/workfs"
)

// testUID is an account that need not exist: files only carry its number.
const testUID = 4244 // nobody else's: a test here uses up the inotify instances of this user

// TestUnprivileged runs every other test of the package again as an ordinary user. It needs root.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the run it starts
	}
	dir, err := os.MkdirTemp("/tmp", "treescan")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, testUID, testUID))
	cmd := exec.Command("/proc/self/exe", "-test.run=.", "-test.skip=^TestUnprivileged$")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as uid %d: %v\n%.4000s", testUID, err, out)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// put writes files; a name that ends with a slash is a folder.
func put(t testing.TB, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(full, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644))
	}
}

func open(t testing.TB, dir string) *workfs.Root {
	t.Helper()
	r, err := workfs.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func scan(t testing.TB, dir string, cfg Config) *Result {
	t.Helper()
	r, err := Scan(t.Context(), open(t, dir), cfg)
	must(t, err)
	return r
}

func protectedOf(list []Protected) (rels []string) {
	for _, p := range list {
		rels = append(rels, p.Rel)
	}
	return rels
}

func secretsOf(list []Secret) (rels []string) {
	for _, p := range list {
		rels = append(rels, p.Rel)
	}
	return rels
}

func want(t testing.TB, what string, got []string, names ...string) {
	t.Helper()
	if !slices.Equal(got, names) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, names)
	}
}

const privateKey = "-----BEGIN PRIVATE KEY-----\n"

func TestFindings(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "src/main.go=x", "a/b/.vscode/tasks.json={}", "a/b/.vscode/other.json={}", ".mcp.json={}", "x/.CLAUDE/settings.json={}", "x/.claude/.env=A=1",
		".env=A=1", ".env.example=A=", "keys/a.pem="+privateKey, "keys/b.pem=-----BEGIN CERTIFICATE-----", "bare/HEAD=x", "bare/objects/", "bare/refs/", "bare/config=x", "bare/hooks/post-update=x",
		".git/rebase-merge/git-rebase-todo=pick", "n\nl/.envrc=x", "\xff/.mcp.json=x", "linked/.git=gitdir: ../elsewhere/.git/worktrees/x", "far/.git=gitdir: /nowhere/x\n")
	l, err := net.Listen("unix", dir+"/s")
	must(t, err)
	defer l.Close()
	must(t, os.Symlink("/etc", dir+"/.github"), os.Symlink("keys/a.pem", dir+"/.env.link"), syscall.Mkfifo(dir+"/x/.env.fifo", 0o600))
	r := scan(t, dir, Config{})
	want(t, "protected", protectedOf(r.Protected), ".github", ".mcp.json", "a/b/.vscode/tasks.json", "bare/config", "bare/hooks", "far/.git", "linked/.git", "n\nl/.envrc", "x/.CLAUDE", "x/.claude", "\xff/.mcp.json")
	want(t, "pins", r.Pins, "a", "a/b", "a/b/.vscode", "bare", "far", "linked", "n\nl", "x", "\xff")
	want(t, "secrets", secretsOf(r.Secrets), ".env", ".env.link", "keys/a.pem", "n\nl/.envrc", "x/.claude/.env", "x/.env.fifo")
	want(t, "todos", r.Todos, ".git/rebase-merge/git-rebase-todo")
	if len(r.Sockets) != 1 || r.Sockets[0].Rel != "s" || r.Sockets[0].Kind != workfs.Socket {
		t.Errorf("sockets %v", r.Sockets)
	}
	if r.Secrets[1].Target != "keys/a.pem" {
		t.Errorf("target %q", r.Secrets[1].Target)
	}
	var repos []string
	for _, p := range r.Repositories {
		repos = append(repos, fmt.Sprintf("%s bare=%v outside=%v", p.Rel, p.Bare, p.Outside))
	}
	want(t, "repositories", repos, ".git bare=false outside=false", "bare bare=true outside=false", "far/.git bare=false outside=true", "linked/.git bare=false outside=false")
	for range 5 {
		if again := scan(t, dir, Config{}); !reflect.DeepEqual(r, again) {
			t.Fatal("two scans differ")
		}
	}
}

func TestLinksAreFound(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	put(t, dir, ".git/config=x", ".git/hooks/h=x", ".env=A", "d/e/", "node_modules/p/a.js=x", "node_modules/p/b.js=x", "plain=x")
	must(t, os.Link(dir+"/.git/config", dir+"/d/innocent"), os.Link(dir+"/.env", dir+"/d/e/x"), os.Link(dir+"/.env", out+"/y"),
		os.Link(dir+"/.git/hooks/h", dir+"/h2"), os.Link(dir+"/node_modules/p/a.js", out+"/a"), os.Link(dir+"/node_modules/p/b.js", out+"/b"), os.Link(dir+"/plain", out+"/p"))
	r := scan(t, dir, Config{})
	got := fmt.Sprint(r.Links)
	if got != "[{.env [d/e/x] 1} {.git/config [d/innocent] 0} {.git/hooks/h [h2] 0}]" {
		t.Error(got)
	}
	if r.SharedFolders != 1 {
		t.Errorf("shared folders %d", r.SharedFolders)
	}
	if full := scan(t, dir, Config{CountLinks: true}); full.SharedFiles < 3 {
		t.Errorf("shared files %d", full.SharedFiles)
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "small/a=", "data/1=", "data/2=", "data/3=", "data/4=", "deep/1/2/3/4/5/x=", "prot/a/.mcp.json=", "prot/b/.mcp.json=")
	tests := []struct {
		cfg          Config
		what, folder string
	}{
		{Config{MaxEntries: 3}, "entries", ""},
		{Config{MaxDepth: 4}, "depth", "deep"},
		{Config{MaxMounts: 4}, "mounts", "prot"},
	}
	for _, tt := range tests {
		_, err := Scan(t.Context(), open(t, dir), tt.cfg)
		var limit *LimitError
		if !errors.As(err, &limit) || !errors.Is(err, ErrLimit) || limit.What != tt.what || (tt.folder != "" && limit.Folder != tt.folder) || !strings.Contains(err.Error(), "scan.exclude") {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
	}
	r := scan(t, dir, Config{MaxDepth: 4, Exclude: []string{"deep/"}})
	want(t, "excluded", r.Excluded, "deep")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ctx, open(t, dir), Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled scan: %v", err)
	}
}

// deep makes a chain of n folders and puts a protected name at its end.
func deep(t testing.TB, dir string, n int) {
	t.Helper()
	here, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	must(t, err)
	for range n {
		must(t, syscall.Mkdirat(here, "d", 0o755))
		next, err := syscall.Openat(here, "d", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		must(t, err, syscall.Close(here))
		here = next
	}
	f, err := syscall.Openat(here, ".mcp.json", syscall.O_CREAT|syscall.O_WRONLY, 0o644)
	must(t, err, syscall.Close(f), syscall.Close(here))
}

func TestDeepTree(t *testing.T) {
	dir := t.TempDir()
	deep(t, dir, 5000)
	if _, err := Scan(t.Context(), open(t, dir), Config{}); !errors.Is(err, ErrLimit) {
		t.Errorf("got %.200v", err)
	}
	r := scan(t, dir, Config{MaxDepth: 6000})
	if len(r.Protected) != 1 || len(r.Pins) != 5000 || r.Folders != 5001 {
		t.Errorf("%d protected, %d pins, %d folders", len(r.Protected), len(r.Pins), r.Folders)
	}
	must(t, open(t, dir).RemoveAll("d", workfs.Bounds{Entries: 10000, Depth: 6000})) // deeper than testing's own clean-up likes
}

func TestWideFolder(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "treescan") // a disk takes seconds for this many files
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for i := range 100_000 {
		f, err := os.OpenFile(fmt.Sprintf("%s/%d", dir, i), os.O_CREATE|os.O_WRONLY, 0o644)
		must(t, err, f.Close())
	}
	put(t, dir, ".mcp.json=x")
	r := scan(t, dir, Config{})
	if r.Entries != 100_001 || len(r.Protected) != 1 {
		t.Errorf("%d entries, %v", r.Entries, r.Protected)
	}
}

func TestSymlinkLoopsAndUnreadable(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/b/x=", "locked/.mcp.json=x")
	must(t, os.Symlink(".", dir+"/self"), os.Symlink("../..", dir+"/a/b/up"), os.Symlink("x", dir+"/y"), os.Symlink("y", dir+"/x"), os.Symlink("/", dir+"/rootlink"))
	must(t, os.Chmod(dir+"/locked", 0))
	t.Cleanup(func() { os.Chmod(dir+"/locked", 0o755) })
	r := scan(t, dir, Config{})
	if os.Geteuid() == 0 {
		want(t, "protected", protectedOf(r.Protected), "locked/.mcp.json")
	} else if len(r.Unreadable) != 1 || r.Unreadable[0].Rel != "locked" || r.Unreadable[0].UID != testUID {
		t.Errorf("unreadable %v", r.Unreadable)
	}
	if r.Folders > 5 {
		t.Errorf("%d folders: a link was followed", r.Folders)
	}
}

// TestSwapRace replaces folders by links to the outside while scans run; nothing outside may ever be reported.
func TestSwapRace(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	put(t, out, "deep/.mcp.json=x", ".env.outside=x")
	put(t, dir, "d/deep/x=", "d/.env.inside=x")
	must(t, os.Symlink(out, dir+"/l"))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(dir+"/d", dir+"/e")
				os.Rename(dir+"/l", dir+"/d")
				os.Rename(dir+"/d", dir+"/l")
				os.Rename(dir+"/e", dir+"/d")
			}
		}
	})
	raced := 0
	root := open(t, dir)
	for range 3000 {
		r, err := Scan(t.Context(), root, Config{})
		if err != nil {
			t.Error(err)
			break
		}
		raced += r.Raced
		for _, s := range r.Secrets {
			if strings.Contains(s.Rel, "outside") {
				t.Error("scanned through a link:", s.Rel)
			}
		}
		if len(r.Protected) != 0 {
			t.Error("scanned through a link:", r.Protected)
		}
	}
	close(stop)
	swapper.Wait()
	if raced == 0 {
		t.Log("no folder vanished between reading and opening; the race was not met this time")
	}
}

func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestRealRepositories(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "lib/f=1", "ws/")
	git(t, dir+"/lib", "init", "-q")
	git(t, dir+"/lib", "add", ".")
	git(t, dir+"/lib", "commit", "-qm", "1")
	ws := dir + "/ws"
	git(t, ws, "init", "-q")
	git(t, ws, "commit", "-qm", "1", "--allow-empty")
	git(t, ws, "submodule", "--quiet", "add", dir+"/lib", "third/lib")
	git(t, ws, "worktree", "add", "-q", "wt")
	git(t, ws, "init", "-q", "--bare", "nested.git")
	r := scan(t, ws, Config{})
	want(t, "protected", protectedOf(r.Protected), ".git/config", ".git/hooks", ".git/modules/third/lib/config", ".git/modules/third/lib/hooks",
		".git/worktrees/wt/commondir", ".git/worktrees/wt/gitdir", "nested.git/config", "nested.git/hooks", "third/lib/.git", "wt/.git")
	inner := scan(t, ws+"/wt", Config{})
	if len(inner.Repositories) != 1 || !inner.Repositories[0].Outside || inner.Repositories[0].Gitdir != ws+"/.git/worktrees/wt" {
		t.Errorf("worktree: %+v", inner.Repositories)
	}
}

const mountChild = "COWORKER_TEST_MOUNTS"

// TestMounts puts a tmpfs and a bind of /proc into a tree, in a mount namespace of its own. It needs root.
func TestMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the root run checks it
	}
	if os.Getenv(mountChild) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestMounts$")
		cmd.Env = append(os.Environ(), mountChild+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%.4000s", err, out)
		}
		return
	}
	dir := t.TempDir()
	put(t, dir, "tmp/", "proc/", "same/a/", "bound/")
	must(t, syscall.Mount("tmpfs", dir+"/tmp", "tmpfs", 0, ""), syscall.Mount("/proc", dir+"/proc", "", syscall.MS_BIND, ""), syscall.Mount(dir+"/same", dir+"/bound", "", syscall.MS_BIND, ""))
	put(t, dir, "tmp/x/.mcp.json=x", "same/a/.envrc=x")
	r := scan(t, dir, Config{})
	want(t, "mounts", r.Mounts, "bound", "proc", "tmp")
	want(t, "protected", protectedOf(r.Protected), "bound/a/.envrc", "same/a/.envrc", "tmp/x/.mcp.json")
	root := open(t, dir)
	if err := root.RemoveAll("tmp", workfs.DefaultBounds); err == nil {
		t.Error("RemoveAll went into a mount")
	}
	if _, err := root.Lstat("tmp/x/.mcp.json"); err != nil {
		t.Error(err)
	}
	for _, m := range []string{"tmp", "proc", "bound"} {
		must(t, syscall.Unmount(dir+"/"+m, 0))
	}
}
