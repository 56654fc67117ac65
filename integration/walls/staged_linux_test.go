package walls

import (
	"slices"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// onCopy are attempts that may work in a staged session: they change the copy. What the person finds decides.
func onCopy(name string) bool {
	return strings.HasPrefix(name, "protect-") || strings.HasPrefix(name, "absent")
}

// TestAttemptsStaged makes every attempt of the attacker in one staged session: protected names that are there and that are
// not, renames, hard links, mounts. TestAttempts has the controls. Nothing of the person's may differ afterwards, to the
// inode, the times and the number of links.
func TestAttemptsStaged(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		w.addSetuid(t)
		h := newHosts(t, w)
		names := attemptNames(t)
		e, got, before := w.attack(t, h, names, "--staged", "--apply", "never")
		worked := 0
		for i, o := range got {
			want, _ := expected(o.Name)
			if i >= len(names) {
				want.inside = "EACCES EPERM ENOENT"
			}
			if onCopy(o.Name) {
				if o.Worked {
					worked++
				}
				continue
			}
			if !want.insideIsRight(o) {
				t.Errorf("%s: worked %v, %s (%s), want %s", o.Name, o.Worked, o.Errno, o.Detail, want.inside)
			}
		}
		if worked < 20 {
			t.Errorf("%d attempts on protected names worked on the copy: the test shows little", worked)
		}
		h.untouched(t, w, e)
		after := take(t, w.base, "own")
		for _, name := range before.changed(after) {
			if name != "." { // the report was written there, and removed
				t.Errorf("LEAK: %s: was %q, is %q", name, before[name], after[name])
			}
		}
		if len(e.report.Held) > 0 {
			t.Errorf("something was held although nothing was applied: %+v", e.report.Held)
		}
		if !slices.Contains(e.report.Walls["fs.protect"].Mechanisms, "staged") || e.report.Walls["fs.protect"].Detail != "" {
			t.Errorf("fs.protect is kept by %+v", e.report.Walls["fs.protect"])
		}
	})
}
