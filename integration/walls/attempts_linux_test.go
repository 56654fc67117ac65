package walls

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// attemptNames asks the attacker.
func attemptNames(t testing.TB) []string {
	t.Helper()
	out, err := exec.Command(filepath.Join(built, "attacker"), "-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(out))
	if os.Geteuid() != 0 { // nobody could make the program that belongs to another user
		names = slices.DeleteFunc(names, func(n string) bool { return n == "setuid-program" })
	}
	return names
}

// TestAttempts makes every attempt of the attacker in one session, and then each of them outside. What the person
// finds on the host afterwards decides, and then the errno.
func TestAttempts(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		w.addSetuid(t)
		h := newHosts(t, w)
		names := attemptNames(t)
		t.Run("inside", func(t *testing.T) { inside(t, w, h, names) })
		t.Run("control", func(t *testing.T) { outside(t, u, h, names) })
	})
}

// honest are the names in the workspace that attempts may change: honest programs do.
func honest(name string) bool {
	if name == "." { // the report was written there, and removed
		return true
	}
	rel, ok := strings.CutPrefix(name, "home/code/project")
	if !ok {
		return false
	}
	rel = strings.TrimPrefix(rel, "/")
	switch rel {
	case "", ".git", ".git/objects", ".git/refs/heads", ".vscode", ".github", // their times
		"scratch-top", ".git/objects/attacker", ".git/refs/heads/attacker", ".git/index.attacker", ".vscode/extensions.json", ".github/CODEOWNERS", ".gitmodules":
		return true
	}
	top, below, _ := strings.Cut(rel, "/")
	switch base := filepath.Base(below); {
	case top == "scratch", base == ".github", base == ".vscode": // folders that hold nothing any more
		return true
	case top == "fresh", top == "fresh-tree":
		return below == "" || !strings.HasPrefix(base, ".")
	}
	return false
}

// attack makes every attempt of the attacker in one session, and then those on the cell itself. It gives what the person's
// files were before.
func (w *world) attack(t *testing.T, h *hosts, names []string, flags ...string) (ended, []outcome, snapshot) {
	t.Helper()
	attacker := filepath.Join(w.work, "scratch", "attacker")
	data, err := os.ReadFile(filepath.Join(built, "attacker"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(attacker, data, 0o755); err != nil {
		t.Fatal(err)
	}
	// A process of the host by its number there, and the cell by its number inside.
	host, cell := h.aim(t, w, "host.json", h.targets.Pid), h.aim(t, w, "cell.json", 1)
	if err := w.user.Own(filepath.Join(w.work, "scratch")); err != nil {
		t.Fatal(err)
	}
	before := take(t, w.base, "own")
	script := `a=$1 h=$2 c=$3; shift 3; "$a" "$h" "$@" && "$a" "$c" ` + strings.Join(cellAttempts, " ")
	e := w.execIn(t, h.net, append(flags, "--hide", "private"), append([]string{"sh", "-c", script, "sh", attacker, host, cell}, names...)...)
	if e.code != 0 {
		t.Fatalf("the attacker ended with %d after %d lines:\n%.4000s", e.code, strings.Count(e.out, "\n"), e.err)
	}
	if e.report.Level != "enforced" {
		t.Errorf("level %q, want enforced", e.report.Level)
	}
	got := outcomes(t, e.out)
	if want := len(names) + len(cellAttempts); len(got) != want {
		t.Fatalf("%d outcomes, want %d", len(got), want)
	}
	return e, got, before
}

func inside(t *testing.T, w *world, h *hosts, names []string) {
	e, got, before := w.attack(t, h, names)
	for i, o := range got {
		want, _ := expected(o.Name)
		if i >= len(names) {
			want.inside = "EACCES EPERM ENOENT"
		}
		if !want.insideIsRight(o) {
			t.Errorf("%s: worked %v, %s (%s), want %s", o.Name, o.Worked, o.Errno, o.Detail, want.inside)
		}
	}
	h.untouched(t, w, e)
	after := take(t, w.base, "own")
	for _, name := range before.changed(after) {
		if !honest(name) {
			t.Errorf("LEAK: %s: was %q, is %q", name, before[name], after[name])
		}
	}
	checkHeld(t, w, e, names)
}

// untouched wants no secret printed, no listener reached and the process outside alive.
func (h *hosts) untouched(t *testing.T, w *world, e ended) {
	t.Helper()
	if strings.Contains(e.out+e.err, w.canary) {
		t.Errorf("LEAK: the secret was printed: %s", e.err)
	}
	for name, hits := range h.hits {
		if n := hits.Load(); n != 0 {
			t.Errorf("LEAK: the listener %s was reached %d times", name, n)
		}
	}
	if !h.alive() {
		t.Error("LEAK: the process outside is dead")
	}
}

// cellAttempts are aimed at the cell itself, which runs as the same user and is process 1 inside.
var cellAttempts = []string{
	"ptrace-seize", "vm-read", "vm-write", "mem-write", "dump-cell", "proc-other:root", "proc-other:cwd", "proc-other:fd",
	"proc-other:environ", "proc-other:maps", "proc-other:mem",
}

// checkHeld wants one held item for every planted name.
func checkHeld(t *testing.T, w *world, e ended, names []string) {
	t.Helper()
	listed := w.coworker(t, "held", "list", "--json")
	planted := 0
	for _, name := range names {
		if strings.HasPrefix(name, "absent") {
			planted++
		}
	}
	if len(e.report.Held) < planted {
		t.Errorf("%d items were held, want %d: %+v", len(e.report.Held), planted, e.report.Held)
	}
	for _, item := range e.report.Held {
		if !strings.Contains(listed, filepath.Base(item.Path)) {
			t.Errorf("held list does not name %s", item.Path)
		}
	}
}

// outside makes every attempt without a cell. Those that leave no trace run together; after each of the others the
// world is put in order.
func outside(t *testing.T, u testuser.User, h *hosts, names []string) {
	w := &world{user: u, base: u.Dir(t), canary: "control"}
	w.home, w.work, w.outside = filepath.Join(w.base, "home"), filepath.Join(w.base, "home/code/project"), filepath.Join(w.base, "outside")
	w.fill(t)
	w.addSetuid(t)
	c := &controls{w: w, h: h, aimed: h.aim(t, w, "targets.json", h.targets.Pid), before: take(t, w.base)}
	var quiet []string
	for _, name := range names {
		want, _ := expected(name)
		switch {
		case want.outside == "none":
		case want.effect == "":
			quiet = append(quiet, name)
		default:
			c.one(t, name, want)
		}
	}
	o, _ := c.run(t, quiet...)
	for _, o := range o {
		c.judge(t, o)
	}
}

// controls are attempts outside, in one world.
type controls struct {
	w      *world
	h      *hosts
	aimed  string
	before snapshot
}

func (c *controls) run(t *testing.T, names ...string) ([]outcome, ended) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.w.user.Command(ctx, c.w.home, filepath.Join(built, "attacker"), append([]string{c.aimed}, names...)...)
	cmd.Dir = c.w.work
	e := c.w.finish(t, c.h.net, cmd)
	all := outcomes(t, e.out)
	if e.code != 0 || len(all) != len(names) {
		t.Fatalf("outside: the attacker ended with %d after %d of %d attempts: %s", e.code, len(all), len(names), e.err)
	}
	return all, e
}

func (c *controls) judge(t *testing.T, o outcome) {
	t.Helper()
	if want, _ := expected(o.Name); !want.outsideIsRight(o, c.w.user.Root()) {
		t.Errorf("%s outside: worked %v, %s (%s), want %s", o.Name, o.Worked, o.Errno, o.Detail, want.outside)
	}
}

func (c *controls) one(t *testing.T, name string, want expectation) {
	t.Helper()
	hits := c.h.total()
	o, e := c.run(t, name)
	c.judge(t, o[0])
	if want.effect == onHosts {
		if !c.h.reached(hits) {
			t.Errorf("%s outside reaches no listener: inside it shows nothing", name)
		}
		return
	}
	if want.effect == onSecret && !strings.Contains(e.err, c.w.canary) {
		t.Errorf("%s outside does not print the secret: inside it shows nothing", name)
	}
	changed := c.before.changed(take(t, c.w.base))
	if want.effect != onSecret && len(changed) == 0 {
		t.Errorf("%s outside changes nothing: inside it shows nothing", name)
	}
	if len(changed) > 0 {
		c.w.restore(t, changed)
		c.before = take(t, c.w.base)
	}
}
