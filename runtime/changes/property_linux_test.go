package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killVar makes the test binary apply a stage and die at a step.
const killVar = "COWORKER_TEST_KILL"

var names = []string{"a", "b", "c", "d.txt", "e", "F", "f", "g\n", "h\xff", "i"}

func randomPath(r *rand.Rand) string {
	parts := []string{names[r.IntN(len(names))]}
	for r.IntN(3) > 0 && len(parts) < 4 {
		parts = append(parts, names[r.IntN(len(names))])
	}
	return strings.Join(parts, "/")
}

// populate makes a random tree with files that must never change.
func populate(dir string, r *rand.Rand) {
	for range 40 {
		one(dir, r)
	}
	for _, rel := range [...]string{".env", "a.d/.env.local", ".git/hooks/pre-commit", ".git/config", ".claude/settings.json", "keys/server.key"} {
		full := filepath.Join(dir, rel)
		os.MkdirAll(filepath.Dir(full), 0o755)
		os.WriteFile(full, []byte("-----BEGIN PRIVATE KEY-----\n"+rel), 0o600)
	}
	os.WriteFile(filepath.Join(dir, ".git/config"), []byte("[core]\n\tbare = false\n"), 0o644)
}

// untouchable are the paths that populate makes and no session may change, the inert keys of a configuration aside.
func untouchable(rel string) bool {
	return strings.Contains(rel, ".env") || strings.HasPrefix(rel, ".git/hooks") || strings.HasPrefix(rel, ".claude") || rel == "keys/server.key"
}

// one does one random thing. What cannot be done, because something stands in the way, is left.
func one(dir string, r *rand.Rand) {
	full := filepath.Join(dir, randomPath(r))
	os.MkdirAll(filepath.Dir(full), 0o755)
	switch r.IntN(12) {
	case 0, 1, 2:
		os.WriteFile(full, fmt.Appendf(nil, "%d", r.IntN(1e6)), fs.FileMode(0o600|r.IntN(0o200)))
	case 3:
		os.Symlink(randomPath(r), full)
	case 4:
		os.Remove(full)
	case 5:
		os.RemoveAll(full)
	case 6:
		os.Chmod(full, fs.FileMode(0o700|r.IntN(0o100)))
	case 7:
		other := filepath.Join(dir, randomPath(r))
		if os.Rename(full, other) != nil {
			exec.Command("cp", "-a", full, other).Run() // what mv does where a folder of the layer below cannot be renamed
		}
	case 8:
		os.Link(full, filepath.Join(dir, randomPath(r)))
	case 9:
		at := time.Unix(int64(1e9+r.IntN(1e8)), int64(r.IntN(1e9)))
		os.Chtimes(full, at, at)
	case 10:
		syscall.Setxattr(full, "user.note", fmt.Appendf(nil, "%d", r.IntN(100)), 0)
	case 11:
		os.RemoveAll(full)
		os.Mkdir(full, 0o750)
		os.WriteFile(filepath.Join(full, "new"), []byte("n"), 0o644)
	}
}

// edit is what a session does: random work, and attacks on what must not change.
func edit(dir string, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for range 25 {
		one(dir, r)
	}
	for _, rel := range [...]string{".env", ".git/hooks/pre-commit", ".claude/settings.json", "keys/server.key"} {
		full := filepath.Join(dir, rel)
		switch r.IntN(5) {
		case 0:
			os.WriteFile(full, []byte("evil"), 0o755)
		case 1:
			os.Remove(full)
		case 2:
			os.RemoveAll(filepath.Dir(full))
		case 3:
			os.Rename(full, filepath.Join(dir, "stolen"))
		}
	}
	os.MkdirAll(filepath.Join(dir, "sub/.git/hooks"), 0o755)
	os.WriteFile(filepath.Join(dir, "sub/.git/hooks/post-checkout"), []byte("evil"), 0o755)
	return nil
}

type killed struct{}

// die ends the process, as far as the disk is concerned, at the nth point.
func die(st *Stage, n int) {
	st.trip = func(string) {
		if n--; n < 0 {
			panic(killed{})
		}
	}
}

// survive calls f and says whether it was killed.
func survive(f func() error) (dead bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(killed); !ok {
				panic(p)
			}
			dead = true
		}
	}()
	return false, f()
}

// reopen is the next process.
func (b *bench) reopen() {
	b.t.Helper()
	must(b.t, b.st.Close())
	var err error
	b.st, err = b.store.Open("s1")
	must(b.t, err)
}

// TestModel: whatever a session did and whenever the apply dies, each path on the host is as it was or as the session left
// it, what must not change does not, and undo brings everything back.
func TestModel(t *testing.T) {
	rounds := 25
	if os.Geteuid() != 0 { // TestUnprivileged runs it again
		rounds = 8
	}
	for i := range rounds {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		t.Run(fmt.Sprint(i), func(t *testing.T) { modelRound(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func modelRound(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	state := t.TempDir()
	if r.IntN(2) == 0 {
		shm, err := os.MkdirTemp("/dev/shm", "changes")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(shm) })
		state = shm // undo on another file system than the workspace
	}
	b := newBench(t, state, func(host string) { populate(host, r) })
	merged := b.overlay(mountJob{Seed: seed})
	edited := map[string]bool{}
	if r.IntN(2) == 0 {
		edited = hostEdits(b.host, r)
	}
	before := snapshot(t, b.host, true)

	die(b.st, r.IntN(120))
	dead, err := survive(func() error { _, err := b.st.Apply(t.Context(), Options{Hold: b.hold}); return err })
	must(t, err)
	b.st.trip = nil
	if dead {
		between(t, "after the kill", b.host, before, merged)
		b.reopen()
		if _, err := b.st.Changes(t.Context()); err != nil {
			t.Fatal("after the kill:", err)
		}
		between(t, "after the recovery", b.host, before, merged)
		noTemps(t, b.host)
		b.apply(Options{})
	}
	noTemps(t, b.host)
	applied(t, b, before, merged, edited)
	again, err := b.st.Changes(t.Context())
	must(t, err)
	for _, c := range again.Changes {
		if c.Verdict == Clean || c.Verdict == Held {
			t.Fatalf("a second look finds %+v", c)
		}
	}
	takeAllBack(t, b, r)
	noTemps(t, b.host)
	sameTree(t, "after undo", snapshot(t, b.host, true), before)
}

// takeAllBack undoes every apply, with kills in between.
func takeAllBack(t *testing.T, b *bench, r *rand.Rand) {
	t.Helper()
	for range 20 {
		die(b.st, r.IntN(60))
		dead, err := survive(func() error { _, err := b.st.Undo(t.Context(), Options{}); return err })
		b.st.trip = nil
		if errors.Is(err, ErrNothing) {
			return
		}
		must(t, err)
		if dead {
			b.reopen()
		}
	}
	for {
		if _, err := b.st.Undo(t.Context(), Options{}); errors.Is(err, ErrNothing) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// hostEdits is the person at work meanwhile.
func hostEdits(host string, r *rand.Rand) map[string]bool {
	was, _ := snap(host, true)
	for range 4 {
		one(host, r)
	}
	is, _ := snap(host, true)
	edited := map[string]bool{}
	for rel := range was {
		if is[rel] != was[rel] {
			edited[rel] = true
		}
	}
	for rel := range is {
		if _, ok := was[rel]; !ok {
			edited[rel] = true
		}
	}
	return edited
}

// between: each file is as before or as in the session.
func between(t testing.TB, when, host string, before, merged map[string]state) {
	t.Helper()
	for rel, is := range snapshot(t, host, true) {
		if is.Mode.IsDir() || strings.Contains(rel, ".coworker-") {
			continue
		}
		was, had := before[rel]
		will, has := merged[rel]
		if (!had || is != was) && (!has || is != will) {
			// A file with several names shares its attributes: they may be ahead of the other's.
			if had && is.Sum == was.Sum || has && is.Sum == will.Sum {
				continue
			}
			t.Fatalf("%s: %q is %v, was %v, should be %v", when, rel, is, was, will)
		}
	}
	for rel, was := range before {
		if untouchable(rel) && !was.Mode.IsDir() && read(t, filepath.Join(host, rel)) == "" {
			t.Fatalf("%s: %q was emptied", when, rel)
		}
	}
}

func noTemps(t *testing.T, host string) {
	t.Helper()
	for rel := range snapshot(t, host, false) {
		if strings.Contains(rel, ".coworker-") {
			t.Fatalf("left behind: %q", rel)
		}
	}
}

// applied: what nobody else touched is as in the session.
func applied(t testing.TB, b *bench, before, merged map[string]state, edited map[string]bool) {
	t.Helper()
	now := snapshot(t, b.host, true)
	for rel, was := range before {
		if untouchable(rel) && !was.Mode.IsDir() && now[rel] != was {
			t.Fatalf("%q must not change: %v, was %v", rel, now[rel], was)
		}
	}
	if _, ok := now["sub/.git/hooks/post-checkout"]; ok {
		t.Fatal("a hook was applied")
	}
	if len(edited) > 0 {
		for rel := range edited {
			if was, had := before[rel]; had && !was.Mode.IsDir() && now[rel] != was && now[rel] != merged[rel] {
				t.Fatalf("the person's %q is %v, was %v", rel, now[rel], was)
			}
		}
		return
	}
	for rel, want := range merged {
		got, ok := now[rel]
		if special(rel) || strings.HasPrefix(rel, "sub") || rel == "." {
			continue
		}
		if want.Mode.IsDir() { // its time follows what was left out in it
			got.Mtime, want.Mtime = 0, 0
		}
		if !ok || got != want {
			set, err := b.st.Changes(t.Context())
			t.Fatalf("%q is %v %v, in the session %v; before %v; left %+v %v", rel, got, ok, want, before[rel], set.Changes, err)
		}
	}
	for rel := range now {
		if _, ok := merged[rel]; !ok && !special(rel) {
			set, err := b.st.Changes(t.Context())
			t.Fatalf("%q is still there: %v, before %v; left %+v %v", rel, now[rel], before[rel], set.Changes, err)
		}
	}
}

// special paths are judged, so they and what holds them may differ.
func special(rel string) bool {
	top, _, _ := strings.Cut(rel, "/")
	return top == ".env" || top == ".git" || top == ".claude" || top == "keys" || top == "stolen" || top == "a.d"
}

// TestKill9 kills real processes in the middle of applies and undos.
func TestKill9(t *testing.T) {
	r := rand.New(rand.NewPCG(7, uint64(os.Getpid())))
	for range 6 {
		state := t.TempDir()
		b := newBench(t, state, func(host string) { populate(host, r) })
		merged := b.overlay(mountJob{Seed: r.Uint64() | 1})
		before := snapshot(t, b.host, true)
		must(t, b.st.Close())
		job, _ := json.Marshal(killJob{State: state, Points: r.IntN(80)})
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), killVar+"="+string(job))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
			t.Fatalf("%v\n%s", err, out)
		}
		b.st, err = b.store.Open("s1")
		must(t, err)
		between(t, "after kill -9", b.host, before, merged)
		b.apply(Options{})
		applied(t, b, before, merged, nil)
		takeAllBack(t, b, r)
		sameTree(t, "after undo", snapshot(t, b.host, true), before)
		must(t, b.st.Close())
	}
}

type killJob struct {
	State  string
	Points int
}

func applyToDeath(text string) {
	var job killJob
	err := json.Unmarshal([]byte(text), &job)
	store, oerr := OpenStore(filepath.Join(job.State, "staged"))
	if err = errors.Join(err, oerr); err == nil {
		err = dieApplying(store, job.Points)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dieApplying(store *Store, points int) error {
	st, err := store.Open("s1")
	if err != nil {
		return err
	}
	st.trip = func(string) {
		if points--; points < 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	ctx, o := context.Background(), Options{}
	if _, err := st.Apply(ctx, o); err != nil {
		return err
	}
	if _, err := st.Undo(ctx, o); err != nil && !errors.Is(err, ErrNothing) {
		return err
	}
	return nil
}
