package held

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce/protect"
	"coworker/platform/workfs"
	"coworker/runtime/treescan"
)

// testUID is an account that need not exist: files only carry its number.
const testUID = 4243

// holdLoop makes the test binary hold and put back one file for ever, to be killed.
const holdLoop = "COWORKER_TEST_HOLD_LOOP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdLoop); dir != "" {
		loop(dir)
	}
	os.Exit(m.Run())
}

// TestUnprivileged runs every other test of the package again as an ordinary user. It needs root.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the run it starts
	}
	dir, err := os.MkdirTemp("/tmp", "held")
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

func put(t testing.TB, dir, name, content string) {
	t.Helper()
	full := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644))
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func setup(t testing.TB) (*Store, *workfs.Root, string) {
	t.Helper()
	return setupIn(t, t.TempDir())
}

func setupIn(t testing.TB, state string) (*Store, *workfs.Root, string) {
	t.Helper()
	s, err := Open(state)
	must(t, err)
	dir := t.TempDir()
	root, err := workfs.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { root.Close(); s.Close() })
	return s, root, dir
}

func hold(t testing.TB, s *Store, root *workfs.Root, rel string) Item {
	t.Helper()
	it, err := s.Hold(t.Context(), Request{Root: root, Rel: rel, Session: "s1", Reason: "test", Rule: "r"})
	must(t, err)
	return it
}

// TestHoldKeepDrop runs on one file system and across two.
func TestHoldKeepDrop(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "held")
	must(t, err)
	defer os.RemoveAll(shm)
	for _, state := range []string{t.TempDir(), shm} {
		s, root, dir := setupIn(t, state)
		put(t, dir, "a/.claude/hook.sh", "evil")
		put(t, dir, "n\n\xff/.mcp.json", "{}")
		old := time.Unix(1e9, 7000)
		must(t, os.Chmod(dir+"/a/.claude/hook.sh", 0o751), os.Chtimes(dir+"/a/.claude/hook.sh", old, old), os.Symlink("/etc/passwd", dir+"/a/.claude/link"))
		one, two := hold(t, s, root, "a/.claude"), hold(t, s, root, "n\n\xff/.mcp.json")
		if _, err := os.Lstat(dir + "/a/.claude"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("still there:", err)
		}
		items, broken, err := s.List()
		if err != nil || len(items) != 2 || len(broken) != 0 || items[0].Session != "s1" || items[0].Digest == "" {
			t.Fatalf("%+v %v %v", items, broken, err)
		}
		for _, it := range []Item{one, two} {
			if displaced, err := s.Keep(t.Context(), it.ID, false); err != nil || displaced != nil {
				t.Errorf("keep %q: %v", it.Rel, err)
			}
		}
		info, err := root.Lstat("a/.claude/hook.sh")
		if err != nil || info.Mode != 0o751 || !info.ModTime.Equal(old) {
			t.Errorf("%+v %v", info, err)
		}
		if l, err := root.Readlink("a/.claude/link"); err != nil || l != "/etc/passwd" {
			t.Errorf("%q %v", l, err)
		}
		if items, _, _ := s.List(); len(items) != 0 {
			t.Errorf("left: %v", items)
		}
		three := hold(t, s, root, "a/.claude")
		must(t, s.Drop(three.ID))
		if err := s.Drop(three.ID); !errors.Is(err, ErrNoItem) {
			t.Error(err)
		}
	}
}

func TestKeepRefuses(t *testing.T) {
	s, root, dir := setup(t)
	put(t, dir, ".mcp.json", "held")
	it := hold(t, s, root, ".mcp.json")
	put(t, dir, ".mcp.json", "mine")
	if _, err := s.Keep(t.Context(), it.ID, false); !errors.Is(err, ErrExists) {
		t.Errorf("got %v", err)
	}
	displaced, err := s.Keep(t.Context(), it.ID, true)
	must(t, err)
	if read(t, dir+"/.mcp.json") != "held" || displaced == nil {
		t.Error("force did not replace")
	}
	must(t, os.Remove(dir+"/.mcp.json"))
	if _, err := s.Keep(t.Context(), displaced.ID, false); err != nil || read(t, dir+"/.mcp.json") != "mine" {
		t.Error("what was replaced is lost:", err)
	}
	for _, id := range []string{"", "..", "../x", "20060102T150405-aaaaaaa/", "20060102T150405-aaaaaaaa"} {
		if _, err := s.Keep(t.Context(), id, true); !errors.Is(err, ErrNoItem) {
			t.Errorf("%q: %v", id, err)
		}
		if err := s.Drop(id); !errors.Is(err, ErrNoItem) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestHeldThroughOpenDescriptor: a process that still has the file open, or another link, changes it after the person looked.
func TestHeldThroughOpenDescriptor(t *testing.T) {
	s, root, dir := setup(t)
	put(t, dir, ".mcp.json", "good")
	f, err := os.OpenFile(dir+"/.mcp.json", os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	it := hold(t, s, root, ".mcp.json")
	_, err = f.WriteAt([]byte("evil"), 0)
	must(t, err)
	if _, err := s.Keep(t.Context(), it.ID, false); !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want ErrChanged", err)
	}
}

func TestHoldWithoutRights(t *testing.T) {
	s, root, dir := setup(t)
	put(t, dir, "p/.claude/deep/x", "x")
	must(t, os.Chmod(dir+"/p/.claude", 0o111), os.Chmod(dir+"/p", 0o555))
	it := hold(t, s, root, "p/.claude")
	if info, err := os.Stat(dir + "/p"); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("folder above: %v %v", info.Mode(), err)
	}
	must(t, os.Chmod(dir+"/p", 0o755))
	_, err := s.Keep(t.Context(), it.ID, false)
	must(t, err)
	if info, err := os.Stat(dir + "/p/.claude"); err != nil || info.Mode().Perm() != 0o111 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	must(t, os.Chmod(dir+"/p/.claude", 0o755))
}

func TestHoldSocketAndFifo(t *testing.T) {
	s, root, dir := setup(t)
	must(t, syscall.Mkfifo(dir+"/.envrc", 0o600))
	l, err := net.Listen("unix", dir+"/.mcp.json")
	must(t, err)
	defer l.Close()
	for _, rel := range []string{".envrc", ".mcp.json"} {
		it := hold(t, s, root, rel)
		if len(it.Skipped) != 1 {
			t.Errorf("%+v", it)
		}
		if _, err := root.Lstat(rel); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if _, err := s.Keep(t.Context(), it.ID, false); !errors.Is(err, ErrNoItem) {
			t.Error(err)
		}
		must(t, s.Drop(it.ID))
	}
}

func TestStoreMustBePrivate(t *testing.T) {
	state := t.TempDir()
	must(t, os.Mkdir(state+"/held", 0o755), os.Chmod(state+"/held", 0o755))
	if s, err := Open(state); err == nil {
		s.Close()
		t.Error("a store that others can read was opened")
	}
}

// loop is the child of TestKill.
func loop(dir string) {
	s, err := Open(dir + "/state")
	if err != nil {
		panic(err)
	}
	root, err := workfs.OpenRoot(dir + "/ws")
	if err != nil {
		panic(err)
	}
	os.Stdout.Write([]byte("go\n"))
	for {
		it, err := s.Hold(context.Background(), Request{Root: root, Rel: ".mcp.json", Session: "s"})
		if err != nil {
			panic(err)
		}
		if _, err := s.Keep(context.Background(), it.ID, false); err != nil {
			panic(err)
		}
	}
}

// TestKill kills a process that holds and puts back, at whatever point it is: the bytes are always in exactly one place.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "ws/.mcp.json", "precious")
	for i := range 30 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{holdLoop + "=" + dir}
		out, err := cmd.StdoutPipe()
		must(t, err, cmd.Start())
		out.Read(make([]byte, 3))
		kill := time.NewTimer(time.Duration(i*137) * time.Microsecond) // the point is where in the loop it hits
		<-kill.C
		must(t, cmd.Process.Kill())
		cmd.Wait()
		s, err := Open(dir + "/state")
		must(t, err)
		items, broken, err := s.List()
		must(t, err)
		_, there := os.Stat(dir + "/ws/.mcp.json")
		if len(broken) != 0 {
			t.Fatalf("round %d: broken %v", i, broken)
		}
		var whole []Item
		for _, it := range items {
			if _, err := s.root.Lstat(it.ID + "/" + itemName); err == nil {
				whole = append(whole, it)
			} else {
				must(t, s.Drop(it.ID))
			}
		}
		if (there == nil) == (len(whole) == 1) {
			t.Fatalf("round %d: in the workspace: %v, held: %v", i, there, whole)
		}
		if len(whole) == 1 {
			_, err := s.Keep(t.Context(), whole[0].ID, false)
			must(t, err)
		}
		if got := read(t, dir+"/ws/.mcp.json"); got != "precious" {
			t.Fatalf("round %d: %q", i, got)
		}
		s.Close()
	}
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// inspect scans a workspace and applies the rules to everything, as if all of it were new.
func inspect(t testing.TB, s *Store, root *workfs.Root) (rels []string) {
	t.Helper()
	found, err := treescan.Scan(t.Context(), root, treescan.Config{})
	must(t, err)
	in := Inspector{Store: s, Root: root, Session: "s"}
	items, err := in.Apply(t.Context(), found.Protected)
	must(t, err)
	todos, err := in.Todos(t.Context(), found.Todos)
	must(t, err)
	for _, it := range append(items, todos...) {
		rels = append(rels, it.Rel)
	}
	slices.Sort(rels)
	return rels
}

func realRepositories(t testing.TB, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir+"/lib", 0o755))
	git(t, dir+"/lib", "init", "-q")
	git(t, dir+"/lib", "commit", "-qm", "1", "--allow-empty")
	must(t, os.Mkdir(dir+"/top", 0o755))
	git(t, dir+"/top", "init", "-q")
	git(t, dir+"/top", "submodule", "--quiet", "add", "../lib", "third/lib")
	git(t, dir+"/top", "commit", "-qm", "1")
	git(t, dir+"/top", "worktree", "add", "-q", "wt")
	git(t, dir, "init", "-q", "--bare", "nested.git")
	for _, config := range []string{"top/.git/config", "top/.git/modules/third/lib/config"} {
		// The remote is a local path here, which is held; a clone over https or ssh writes this.
		text := strings.ReplaceAll(read(t, dir+"/"+config), "url = "+dir, "url = https://example.com")
		must(t, os.WriteFile(dir+"/"+config, []byte(text), 0o644))
	}
}

// TestHonestRepositoriesStay: init, submodule add, worktree add and init --bare leave nothing to hold.
func TestHonestRepositoriesStay(t *testing.T) {
	s, root, dir := setup(t)
	realRepositories(t, dir)
	if held := inspect(t, s, root); len(held) != 0 {
		t.Errorf("held %q", held)
	}
	git(t, dir+"/top", "status")
	git(t, dir+"/top/third/lib", "status")
	git(t, dir+"/top/wt", "status")
}

func TestPoisonedRepositoriesAreDefused(t *testing.T) {
	s, root, dir := setup(t)
	realRepositories(t, dir)
	mark := dir + "/ran"
	script := "#!/bin/sh\ntouch " + mark + "\n"
	put(t, dir, "top/.git/hooks/post-checkout", script)
	must(t, os.Chmod(dir+"/top/.git/hooks/post-checkout", 0o755), os.Symlink("/bin/sh", dir+"/top/.git/hooks/x.sample"))
	put(t, dir, "evil.sh", script)
	must(t, os.Chmod(dir+"/evil.sh", 0o755))
	git(t, dir+"/top", "config", "core.fsmonitor", dir+"/evil.sh")
	git(t, dir+"/top", "config", "user.name", "Kept")
	git(t, dir+"/top/third/lib", "config", "core.worktree", "/")
	git(t, dir, "--git-dir=nested.git", "config", "alias.x", "!sh")
	put(t, dir, "lib/.git/commondir", "../../evil")
	put(t, dir, "top/.git/info/attributes", "* filter=x\n")
	put(t, dir, "g/.git", "gitdir: /tmp/elsewhere/.git\n")
	put(t, dir, "top/.git/worktrees/wt/gitdir", "/etc/.git\n")
	put(t, dir, "top/.git/rebase-merge/git-rebase-todo", "pick x\nexec sh\n")
	put(t, dir, "bad/.git/config", "[core\n")
	put(t, dir, "x/.vscode/tasks.json", "{}")

	// Control: without the inspection git runs both.
	git(t, dir+"/top", "status")
	if _, err := os.Stat(mark); err != nil {
		t.Fatal("control: fsmonitor did not run")
	}
	held := inspect(t, s, root)
	want := []string{"bad/.git/config", "g/.git", "lib/.git/commondir", "nested.git/config", "top/.git/config", "top/.git/hooks/post-checkout", "top/.git/hooks/x.sample",
		"top/.git/info/attributes", "top/.git/modules/third/lib/config", "top/.git/rebase-merge/git-rebase-todo", "top/.git/worktrees/wt/gitdir", "x/.vscode/tasks.json"}
	if !slices.Equal(held, want) {
		t.Errorf("held\n got %q\nwant %q", held, want)
	}
	must(t, os.Remove(mark))
	git(t, dir+"/top", "status")
	git(t, dir+"/top", "checkout", "-q", "-b", "other")
	if _, err := os.Stat(mark); err == nil {
		t.Error("something still runs")
	}
	if got := git(t, dir+"/top", "config", "user.name"); got != "Kept\n" {
		// -c user.name above wins over the file, so the file is asked itself
		if !strings.Contains(read(t, dir+"/top/.git/config"), "Kept") {
			t.Error("an inert key is lost")
		}
	}
	if again := inspect(t, s, root); len(again) != 0 {
		t.Errorf("second pass held %q", again)
	}
}

// TestRightsTakenAway: a cell hides a config and a protected name behind folder modes from an unprivileged supervisor.
func TestRightsTakenAway(t *testing.T) {
	s, root, dir := setup(t)
	put(t, dir, "a/.git/config", "[core]\n\tpager = evil\n\tbare = false\n")
	put(t, dir, "b/.mcp.json", "x")
	must(t, os.Chmod(dir+"/a/.git", 0o555), os.Chmod(dir+"/b", 0))
	t.Cleanup(func() { os.Chmod(dir+"/a/.git", 0o755) })
	if os.Geteuid() != 0 {
		found, err := treescan.Scan(t.Context(), root, treescan.Config{})
		must(t, err)
		if len(found.Unreadable) != 1 {
			t.Fatalf("%+v", found.Unreadable)
		}
		must(t, Inspector{Store: s, Root: root}.Reopen(found.Unreadable))
	}
	held := inspect(t, s, root)
	if !slices.Equal(held, []string{"a/.git/config", "b/.mcp.json"}) {
		t.Errorf("held %q", held)
	}
	if got := read(t, dir+"/a/.git/config"); got != "[core]\n\tbare = \"false\"\n" {
		t.Errorf("%q", got)
	}
	must(t, os.Chmod(dir+"/b", 0o755))
}

func TestApplyGoesOnAfterAnError(t *testing.T) {
	s, root, dir := setup(t)
	put(t, dir, "b/.mcp.json", "x")
	rule := protect.Rule{Name: "r"}
	found := []treescan.Protected{{Path: treescan.Path{Rel: "../x"}, Rule: rule}, {Path: treescan.Path{Rel: "gone"}, Rule: rule}, {Path: treescan.Path{Rel: "b/.mcp.json"}, Rule: rule}}
	items, err := Inspector{Store: s, Root: root}.Apply(t.Context(), found)
	if !errors.Is(err, workfs.ErrPath) || len(items) != 1 {
		t.Errorf("%v %v", items, err)
	}
}
