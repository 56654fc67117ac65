package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"coworker/enforce"
)

// rest are the hierarchies that a session's own group does without.
func rest(t *testing.T) (out []hierarchy) {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if !h.useful() {
			out = append(out, h)
		}
	}
	return out
}

// TestLend has another make folders of the group's name in hierarchies of its own, and leaves some of a group that is gone.
func TestLend(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{})
	name, err := g.Lend()
	if err != nil || name != "/coworker/"+g.name {
		t.Fatalf("%q, %v", name, err)
	}
	var lent, stale []string
	for _, h := range rest(t) { // none on a host with v2 alone
		lent = append(lent, filepath.Join(h.mount, name))
		stale = append(stale, filepath.Join(h.mount, name+"-stale"))
	}
	for _, dir := range append(lent, stale...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	second := newNamed(t, g.name+"-second")
	if _, err := second.Lend(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range stale {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s of a group that is gone is still there: %v", dir, err)
		}
	}
	for _, dir := range lent {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a sweep took a folder of a group that lives: %v", err)
		}
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range lent {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func newNamed(t *testing.T, name string) *Group {
	t.Helper()
	g, err := New(name, enforce.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestLendNothing is what a session without a group lends.
func TestLendNothing(t *testing.T) {
	if name, err := new(Group).Lend(); name != "" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

// TestDeviceRules looks at a process that rules hold, and at this one.
func TestDeviceRules(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	ok, detail, err := DeviceRules(os.Getpid())
	if err != nil || ok {
		t.Errorf("this process: %v, %q, %v", ok, detail, err)
	}
	group := ""
	for _, h := range rest(t) {
		if h.has("devices") {
			group = filepath.Join(h.mount, parentName, "test-"+strings.ToLower(t.Name()))
		}
	}
	if group == "" {
		return // v2: the kernel matrix starts sessions with programs for it
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	d := dir{path: group}
	t.Cleanup(func() {
		if err := d.remove(nil); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	}()
	if err := d.write("cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, rule string
		want       bool
	}{
		{"devices.deny", "a", true}, {"devices.allow", "c 1:3 rw", true}, {"devices.allow", "b *:* m", false}, {"devices.deny", "b *:* m", true},
		{"devices.allow", "a", false},
	} {
		if err := d.write(tt.file, tt.rule); err != nil {
			t.Fatal(err)
		}
		if ok, detail, err := DeviceRules(cmd.Process.Pid); ok != tt.want || err != nil {
			t.Errorf("after %s to %s: %v, %q, %v", tt.rule, tt.file, ok, detail, err)
		}
	}
}
