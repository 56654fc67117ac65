package changes

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/workfs"
	"coworker/runtime/held"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"--no-optional-locks", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

const gitInside = `
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=s GIT_AUTHOR_EMAIL=s@example.com GIT_COMMITTER_NAME=s GIT_COMMITTER_EMAIL=s@example.com
git() { command git -c safe.directory='*' "$@"; }
`

// TestGitWork: what git does in a session is a sound repository on the host, at every apply.
func TestGitWork(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) {
		git(t, host, "init", "-q")
		for i := range 20 {
			write(t, host, "src/f"+string(rune('a'+i))+".txt", strings.Repeat("line\n", 10+i))
		}
		git(t, host, "add", ".")
		git(t, host, "commit", "-qm", "base")
	})
	before := snapshot(t, b.host, true)
	b.overlay(mountJob{Script: gitInside + `
for i in 1 2 3 4 5; do echo $i >> src/fa.txt; git commit -qam "work $i"; done
git checkout -qb topic HEAD~3
echo topic > topic.txt; git add .; git commit -qm topic
git rebase -q main
git checkout -q main; git merge -q --ff-only topic; git branch -qd topic
git mv src/fb.txt src/moved.txt; git rm -q src/fc.txt; git commit -qm moves
git pack-refs --all; git gc -q --prune=now
git init -q nested; git clone -q nested copy 2>/dev/null
git worktree add -q wt 2>/dev/null
mkdir .git/hooks -p; printf '#!/bin/sh\nevil\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
git config core.fsmonitor evil; git config user.name inert
`})
	b.apply(Options{})
	git(t, b.host, "fsck", "--strict")
	log := git(t, b.host, "log", "--format=%s")
	if !strings.HasPrefix(log, "moves\ntopic\nwork 5\n") {
		t.Error(log)
	}
	if status := git(t, b.host, "status", "--porcelain", "-uno"); status != "" {
		t.Error(status)
	}
	config := read(t, filepath.Join(b.host, ".git/config"))
	if strings.Contains(config, "evil") || !strings.Contains(config, "inert") {
		t.Error(config)
	}
	if _, err := os.Lstat(filepath.Join(b.host, ".git/hooks/post-checkout")); err == nil {
		t.Error("a hook was applied")
	}
	if _, err := os.Lstat(filepath.Join(b.host, "nested/.git/HEAD")); err != nil {
		t.Error("a new repository was not applied:", err)
	}
	// The overlay stays and the session goes on: a second apply takes only what is new, a deleted new file too.
	b.overlay(mountJob{Script: gitInside + "rm topic.txt; git commit -qam second; echo more > more.txt; rm -rf copy"})
	res := b.apply(Options{})
	if len(res.HeldItems) != 0 || len(res.Conflicts) != 0 {
		t.Errorf("held %+v, conflicts %+v", res.HeldItems, res.Conflicts)
	}
	if _, err := os.Lstat(filepath.Join(b.host, "topic.txt")); err == nil {
		t.Error("topic.txt is still there")
	}
	if _, err := os.Lstat(filepath.Join(b.host, "copy")); err == nil {
		t.Error("copy is still there")
	}
	git(t, b.host, "fsck", "--strict")
	b.undo()
	git(t, b.host, "fsck", "--strict")
	b.undo()
	sameTree(t, "after undo", snapshot(t, b.host, true), before)
}

// TestLinks: hard links that the session made are hard links, and undo brings back those that it broke.
func TestLinks(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) {
		write(t, host, "a", "shared")
		must(t, os.Link(filepath.Join(host, "a"), filepath.Join(host, "b")))
	})
	b.overlay(mountJob{Script: "echo new > x; ln x y; mkdir d; ln x d/z; echo more >> a; mv b c; mkdir -p Case; echo 1 > Case/File; mv Case case"})
	b.apply(Options{})
	same := func(p, q string) bool {
		one, err := os.Lstat(filepath.Join(b.host, p))
		must(t, err)
		two, err := os.Lstat(filepath.Join(b.host, q))
		must(t, err)
		return os.SameFile(one, two)
	}
	if !same("x", "y") || !same("x", "d/z") || same("a", "c") {
		t.Error("links are not as in the session")
	}
	// An edit of one name is an edit of all; undo leaves them.
	write(t, b.host, "x", "mine")
	res := b.undo()
	if len(res.Conflicts) < 1 || read(t, filepath.Join(b.host, "y")) != "mine" {
		t.Errorf("%+v", res)
	}
	if !same("a", "b") || read(t, filepath.Join(b.host, "a")) != "shared" {
		t.Error("the host's links did not come back")
	}
}

// TestResolutions: the three answers to a conflict.
func TestResolutions(t *testing.T) {
	for answer, want := range map[Resolution][2]string{Leave: {"mine", "conflict"}, KeepHost: {"mine", ""}, TakeStaged: {"session", ""}} {
		b := newBench(t, t.TempDir(), func(host string) { write(t, host, "d/f", "base"); write(t, host, "d/g", "base") })
		b.put("d/f", "session")
		b.whiteout("d/g")
		write(t, b.host, "d/f", "mine")
		write(t, b.host, "other", "mine") // elsewhere: no matter
		b.apply(Options{Resolve: func(Change) Resolution { return answer }})
		if got := read(t, filepath.Join(b.host, "d/f")); got != want[0] {
			t.Errorf("%v: %q", answer, got)
		}
		left := b.verdicts()["d/f"]
		if string(left.Verdict) != want[1] {
			t.Errorf("%v: then %q", answer, left.Verdict)
		}
		b.undo()
		if got := read(t, filepath.Join(b.host, "d/f")); got != "mine" {
			t.Errorf("%v: after undo %q", answer, got)
		}
	}
}

// TestEqualEdit: the person made the same edit; there is nothing to ask.
func TestEqualEdit(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base") })
	b.put("f", "same")
	write(t, b.host, "f", "same")
	now := time.Now()
	must(t, os.Chtimes(b.upper("f"), now, now), os.Chtimes(filepath.Join(b.host, "f"), now, now))
	if got := b.verdicts(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestStages: locks, listing, and what goes when it is not needed any more.
func TestStages(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base") })
	if _, err := b.store.Open("s1"); !errors.Is(err, ErrBusy) {
		t.Errorf("opened while the session runs: %v", err)
	}
	for _, name := range []string{"none", "../s1", ".", "s1/0"} {
		if _, err := b.store.Open(name); !errors.Is(err, ErrNoStage) {
			t.Errorf("%q: %v", name, err)
		}
	}
	list, err := b.store.List()
	if err != nil || len(list) != 1 || !list[0].Live {
		t.Errorf("%+v %v", list, err)
	}
	must(t, b.st.Ended())
	if list, err := b.store.List(); err != nil || len(list) != 0 {
		t.Errorf("a session that changed nothing left %+v %v", list, err)
	}
	b = newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base") })
	b.put("f", "session")
	must(t, b.st.Ended(), b.st.Close())
	removed, err := b.store.Tidy(t.Context(), time.Now().Add(48*time.Hour), time.Hour)
	if err != nil || len(removed) != 0 {
		t.Errorf("unapplied changes were removed: %v %v", removed, err)
	}
	b.reopen()
	b.apply(Options{})
	must(t, b.st.Close())
	removed, err = b.store.Tidy(t.Context(), time.Now().Add(48*time.Hour), time.Hour)
	if err != nil || len(removed) != 1 {
		t.Errorf("%v %v", removed, err)
	}
}

// TestTorn: a record that was tampered with, or half written, is an error and changes nothing.
func TestTorn(t *testing.T) {
	for _, name := range []string{"0/base", "meta.json", "journal/000001.log"} {
		b := newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base") })
		b.put("f", "session")
		b.apply(Options{})
		b.put("f", "second")
		must(t, b.st.Close())
		path := filepath.Join(b.store.dir, "s1", name)
		data, err := os.ReadFile(path)
		must(t, err)
		data[len(data)/2] ^= 0x55
		must(t, os.WriteFile(path, data, 0o600))
		st, err := b.store.Open("s1")
		if err == nil {
			_, err = st.Apply(t.Context(), Options{})
			must(t, st.Close())
		}
		if !errors.Is(err, ErrTorn) || read(t, filepath.Join(b.host, "f")) != "session" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testUID is an account that need not exist.
const testUID = 4243

// TestUnprivileged runs the other tests again as an ordinary user. It needs root.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the run it starts
	}
	dir, err := os.MkdirTemp("/tmp", "changes")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, testUID, testUID))
	cmd := exec.Command("/proc/self/exe", "-test.run=.", "-test.skip=^(TestUnprivileged|TestAsOwner|TestDeepAndMany|TestBaselineSpeed)$")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as uid %d: %v\n%.6000s", testUID, err, out)
	}
}

// TestAsOwner: root applies with the rights of the workspace's owner, so a folder in it that is not theirs stays as it is.
func TestAsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can act as somebody else
	}
	dir, state := t.TempDir(), t.TempDir()
	write(t, dir, "f", "base")
	write(t, dir, "gone", "base")
	for _, p := range []string{"", "f", "gone"} {
		must(t, os.Chown(filepath.Join(dir, p), testUID, testUID))
	}
	write(t, dir, "roots/f", "base")
	store, err := OpenStore(filepath.Join(state, "staged"))
	must(t, err)
	hold, err := held.Open(state)
	must(t, err)
	defer hold.Close()
	st, err := store.Create(t.Context(), Request{Session: "s", Workspace: dir, UID: testUID, GID: testUID, Trees: []enforce.Tree{{Path: dir, Writable: true}}})
	must(t, err)
	defer st.Close()
	root, err := workfs.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	must(t, st.Baseline(t.Context(), 0, root))
	upper := filepath.Join(st.Folder(0), "upper")
	for rel, text := range map[string]string{"f": "session", "new/x": "session", "roots/f": "evil", ".envrc": "evil"} {
		write(t, upper, rel, text)
	}
	must(t, syscall.Mknod(filepath.Join(upper, "gone"), syscall.S_IFCHR, 0))
	for _, rel := range []string{"f", "new", "new/x", "roots", "roots/f", ".envrc"} {
		must(t, os.Chown(filepath.Join(upper, rel), testUID, testUID))
	}
	res, err := st.Apply(t.Context(), Options{Hold: hold})
	must(t, err)
	if read(t, filepath.Join(dir, "f")) != "session" || read(t, filepath.Join(dir, "new/x")) != "session" || read(t, filepath.Join(dir, "roots/f")) != "base" {
		t.Errorf("%+v", res)
	}
	if len(res.HeldItems) != 1 {
		t.Errorf("held: %+v, left out: %+v", res.HeldItems, res.LeftOut)
	}
	info, err := os.Lstat(filepath.Join(dir, "new/x"))
	must(t, err)
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != testUID {
		t.Errorf("made by user %d", uid)
	}
	_, err = st.Undo(t.Context(), Options{})
	must(t, err)
	if read(t, filepath.Join(dir, "f")) != "base" || read(t, filepath.Join(dir, "gone")) != "base" {
		t.Error("undo as root")
	}
}

// TestInterrupted: an apply that is stopped, or fails, in one process is finished by the same one.
func TestInterrupted(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base") })
	for i := range 2000 {
		b.put(filepath.Join("d", strings.Repeat("x", i%50), string(rune('a'+i%26))+strings.Repeat("y", i%90)), "new")
	}
	b.put("f", "session")
	ctx, cancel := context.WithCancel(t.Context())
	n := 300
	b.st.trip = func(string) {
		if n--; n == 0 {
			cancel()
		}
	}
	_, err := b.st.Apply(ctx, Options{})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.st.trip = nil
	res := b.apply(Options{})
	if res.Finished == "" || read(t, filepath.Join(b.host, "f")) != "session" {
		t.Errorf("finished %q", res.Finished)
	}
	for range 3 {
		if _, err := b.st.Undo(t.Context(), Options{}); err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
	}
	if list, err := os.ReadDir(b.host); err != nil || len(list) != 1 || read(t, filepath.Join(b.host, "f")) != "base" {
		t.Errorf("%v %v", list, err)
	}
}
