package treescan

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"coworker/platform/workfs"
)

func watch(t testing.TB, dir string) *Watcher {
	t.Helper()
	w, _, err := Watch(t.Context(), open(t, dir), Config{})
	must(t, err)
	t.Cleanup(func() { w.Close() })
	if n, lost := w.Marked(); n == 0 {
		t.Fatalf("nothing marked: %s", lost)
	}
	return w
}

func sweepOnce(t testing.TB, w *Watcher) *Findings {
	t.Helper()
	f, err := w.Sweep(t.Context())
	must(t, err)
	return f
}

func TestSweepFindsNewNames(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/b/c/x=", ".git/config=x", ".git/HEAD=x", "m/", "bare/objects/", "bare/refs/", "bare/config=x")
	out := t.TempDir()
	put(t, out, "moved/q/.vscode/tasks.json=x")
	w := watch(t, dir)
	if f := sweepOnce(t, w); !f.Empty() || f.Full {
		t.Fatalf("quiet tree: %+v", f)
	}
	put(t, dir, "a/b/c/.mcp.json=x", "new/deep/er/.claude/x=1", ".git/hooks/pre-commit=x", "a/.env=x", "a/plain=x")
	l, err := net.Listen("unix", dir+"/a/s")
	must(t, err)
	defer l.Close()
	f := sweepOnce(t, w)
	want(t, "protected", protectedOf(f.Protected), ".git/hooks", "a/b/c/.mcp.json", "new/deep/er/.claude")
	want(t, "secrets", secretsOf(f.Secrets), "a/.env")
	want(t, "replaced", f.Replaced)
	if len(f.Sockets) != 1 || f.Full {
		t.Errorf("%+v", f)
	}
	if f := sweepOnce(t, w); !f.Empty() || f.Events != 0 {
		t.Errorf("second sweep: %+v", f)
	}

	// Inside a new protected folder, in a folder found by the sweep, by rename from outside, by a folder becoming a repository.
	put(t, dir, ".git/hooks/post-commit=x", "new/deep/.envrc=x", "bare/HEAD=x")
	must(t, os.Rename(out+"/moved", dir+"/m/moved"))
	f = sweepOnce(t, w)
	want(t, "protected", protectedOf(f.Protected), "bare/config", "m/moved/q/.vscode/tasks.json", "new/deep/.envrc")
	want(t, "replaced", f.Replaced, ".git/hooks")

	// A folder that moved within the tree is watched at its new place.
	must(t, os.Rename(dir+"/a/b", dir+"/m/b2"))
	f = sweepOnce(t, w)
	want(t, "protected", protectedOf(f.Protected), "m/b2/c/.mcp.json")
	want(t, "moved", f.Moved, "a/b")
	put(t, dir, "m/b2/c/.gitlab-ci.yml=x")
	want(t, "protected", protectedOf(sweepOnce(t, w).Protected), "m/b2/c/.gitlab-ci.yml")
}

func TestSweepSeesReplacement(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".git/config=x", ".env=x", ".mcp.json=x")
	w := watch(t, dir)
	put(t, dir, "config.new=y", "env.new=y")
	must(t, os.Rename(dir+"/config.new", dir+"/.git/config"), os.Rename(dir+"/env.new", dir+"/.env"))
	f := sweepOnce(t, w)
	want(t, "replaced", f.Replaced, ".env", ".git/config")
	want(t, "new", protectedOf(f.Protected))
	must(t, os.Rename(dir+"/.mcp.json", t.TempDir()+"/held"))
	w.Forget(".mcp.json")
	put(t, dir, ".mcp.json=again")
	want(t, "new", protectedOf(sweepOnce(t, w).Protected), ".mcp.json")
}

func TestSweepReadsNewKeysAgain(t *testing.T) {
	dir := t.TempDir()
	w := watch(t, dir)
	put(t, dir, "a.pem=")
	want(t, "empty", secretsOf(sweepOnce(t, w).Secrets))
	put(t, dir, "a.pem="+privateKey)
	want(t, "written", secretsOf(sweepOnce(t, w).Secrets), "a.pem")
	want(t, "once", secretsOf(sweepOnce(t, w).Secrets))
}

// TestRightsTakenAway hides names from an unprivileged supervisor by folder modes and shows them after the sweep.
func TestRightsTakenAway(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "old/x=")
	w := watch(t, dir)
	put(t, dir, "old/.mcp.json=x", "new/.mcp.json=x")
	must(t, os.Chmod(dir+"/old", 0), os.Chmod(dir+"/new", 0))
	f := sweepOnce(t, w)
	if os.Geteuid() != 0 && len(f.Unreadable) != 2 {
		t.Errorf("%+v", f)
	}
	got := protectedOf(f.Protected)
	must(t, os.Chmod(dir+"/old", 0o755), os.Chmod(dir+"/new", 0o755))
	got = append(got, protectedOf(sweepOnce(t, w).Protected)...)
	want(t, "protected", got, "new/.mcp.json", "old/.mcp.json")
	if f := sweepOnce(t, w); !f.Empty() || f.Full {
		t.Errorf("third: %+v", f)
	}
}

func TestSweepSeesNewLink(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".env=x", "d/")
	w := watch(t, dir)
	must(t, os.Link(dir+"/.env", dir+"/d/x"))
	f := sweepOnce(t, w)
	if got := fmt.Sprint(f.Links); got != "[{.env [d/x] 0}]" {
		t.Error(got)
	}
	must(t, os.Link(dir+"/d/x", dir+"/d/.mcp.json"))
	if got := fmt.Sprint(sweepOnce(t, w).Links); !strings.Contains(got, ".mcp.json") {
		t.Error(got)
	}
}

func TestOverflowIsAFullWalk(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/", "b/")
	w := watch(t, dir)
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	var most int
	fmt.Sscan(string(data), &most)
	for i := range most + 10 {
		must(t, os.Rename(dir+"/a", dir+"/c"), os.Rename(dir+"/c", dir+"/a"))
		if i == most {
			put(t, dir, "b/.mcp.json=x")
		}
	}
	f := sweepOnce(t, w)
	if !f.Full || f.Reason == "" {
		t.Errorf("%+v", f)
	}
	want(t, "protected", protectedOf(f.Protected), "b/.mcp.json")
	put(t, dir, "a/.mcp.json=x")
	f = sweepOnce(t, w)
	if f.Full {
		t.Error("still full")
	}
	want(t, "protected", protectedOf(f.Protected), "a/.mcp.json")
}

// TestNoInstancesLeft uses up the user's inotify instances. As root that would touch other programs, so only the
// unprivileged run does it, with a uid of its own.
func TestNoInstancesLeft(t *testing.T) {
	if os.Geteuid() == 0 {
		return
	}
	dir := t.TempDir()
	put(t, dir, "a/x=")
	var all []*workfs.Marks
	for {
		m, err := workfs.NewMarks()
		if err != nil {
			break
		}
		all = append(all, m)
	}
	w, _, err := Watch(t.Context(), open(t, dir), Config{})
	for _, m := range all {
		m.Close()
	}
	must(t, err)
	defer w.Close()
	put(t, dir, "a/.mcp.json=x")
	f := sweepOnce(t, w)
	if !f.Full || !strings.Contains(f.Reason, "inotify") {
		t.Errorf("%+v", f)
	}
	want(t, "protected", protectedOf(f.Protected), "a/.mcp.json")
	if f := sweepOnce(t, w); !f.Empty() {
		t.Errorf("second: %+v", f)
	}
}

func TestSweepWhileTreeChanges(t *testing.T) {
	dir := t.TempDir()
	w := watch(t, dir)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("%s/t%d", dir, i%7)
			os.MkdirAll(name+"/x/y", 0o755)
			os.Rename(name, fmt.Sprintf("%s/u%d", dir, i%5))
			os.RemoveAll(fmt.Sprintf("%s/u%d", dir, (i+2)%5))
			syscall.Symlink("/", name)
			os.Remove(name)
		}
	}()
	for range 20_000 {
		if _, err := w.Sweep(t.Context()); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-done
	sweepOnce(t, w)
	put(t, dir, "last/.mcp.json=x")
	want(t, "protected", protectedOf(sweepOnce(t, w).Protected), "last/.mcp.json")
}

func BenchmarkSweepQuiet(b *testing.B) {
	dir := b.TempDir()
	put(b, dir, "a/b/c=", ".git/config=x")
	w := watch(b, dir)
	for b.Loop() {
		sweepOnce(b, w)
	}
}

func BenchmarkWatch1000(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		put(b, dir, fmt.Sprintf("%d/%d.go=", i/20, i))
	}
	root := open(b, dir)
	for b.Loop() {
		w, _, err := Watch(b.Context(), root, Config{})
		// Closing waits for an SRCU grace period in the kernel, some milliseconds that a session pays once, at its end.
		b.StopTimer()
		must(b, err, w.Close())
		b.StartTimer()
	}
}

func BenchmarkScan(b *testing.B) {
	for _, size := range []int{1_000, 200_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir := b.TempDir()
			for i := range size / 20 {
				sub := fmt.Sprintf("%s/%d/%d", dir, i%50, i)
				must(b, os.MkdirAll(sub, 0o755))
				for j := range 20 {
					f, err := os.Create(fmt.Sprintf("%s/file-%d.go", sub, j))
					must(b, err, f.Close())
				}
			}
			root := open(b, dir)
			b.ResetTimer()
			b.ReportAllocs()
			for b.Loop() {
				_, err := Scan(b.Context(), root, Config{})
				must(b, err)
			}
		})
	}
}

// TestForeignFoldersAreToldOnce: for a scan with more rights than the cell, a folder that the cell's user could not list
// is unreadable from the start, and no news later.
func TestForeignFoldersAreToldOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root has more rights
	}
	for _, marks := range []bool{true, false} {
		dir := t.TempDir()
		put(t, dir, "a/x=", "b/x=")
		must(t, os.Chown(filepath.Join(dir, "a"), 54321, 54321), os.Chmod(filepath.Join(dir, "a"), 0o700))
		must(t, os.Chmod(filepath.Join(dir, "b"), 0))
		w, r, err := Watch(t.Context(), open(t, dir), Config{As: &Reader{}, NoMarks: !marks})
		must(t, err)
		defer w.Close()
		if len(r.Unreadable) != 2 {
			t.Errorf("marks %v: unreadable %v", marks, r.Unreadable)
		}
		for range 2 {
			if f := sweepOnce(t, w); !f.Empty() {
				t.Errorf("marks %v: %+v", marks, f)
			}
		}
	}
}
