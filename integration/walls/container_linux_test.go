package walls

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce/container"
	"coworker/integration/house/testuser"
)

// inContainer runs a test once, with the backend container.
func inContainer(t *testing.T, f func(t *testing.T, w *world)) {
	root := testuser.All(t)[0]
	if !root.Root() {
		return // TestContainerNeedsRoot says what others get
	}
	t.Run(containerName, func(t *testing.T) { f(t, emptyWorld(t, root)) })
}

// TestContainerIsProved asks which backend was proved, and for what only it has.
func TestContainerIsProved(t *testing.T) {
	inContainer(t, func(t *testing.T, w *world) {
		var v struct {
			Level    string            `json:"level"`
			Versions map[string]string `json:"versions"`
		}
		out := w.coworker(t, "sandbox", "verify", "--json")
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if v.Level != "enforced" || v.Versions["backend"] != "container" || !strings.Contains(out, "device-rules") {
			t.Errorf("level %q, versions %v:\n%s", v.Level, v.Versions, out)
		}
	})
}

// TestContainerNeedsRoot wants words for those who cannot have it.
func TestContainerNeedsRoot(t *testing.T) {
	t.Run(containerName, func(t *testing.T) {
		w := emptyWorld(t, testuser.Unprivileged(t))
		e := w.exec(t, nil, "echo", "it ran")
		if e.code != 120 || e.out != "" || !strings.Contains(e.err, "only root") || !strings.Contains(e.err, "hint: ") {
			t.Errorf("ended with %d, printed %q: %s", e.code, e.out, e.err)
		}
	})
}

// TestOtherBox shows that coworker starts no helper but its own, and none that is not there.
func TestOtherBox(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"absent":  os.Remove,
		"changed": func(file string) error { return os.Truncate(file, 1<<20) },
		"other":   func(file string) error { return os.Rename(filepath.Join(filepath.Dir(file), "coworker-proxy"), file) },
	} {
		t.Run(name, func(t *testing.T) {
			inContainer(t, func(t *testing.T, w *world) {
				var programs []string
				for _, p := range []string{"coworker", "coworker-cell", "coworker-proxy", "coworker-box"} {
					programs = append(programs, filepath.Join(built, p))
				}
				dir := testuser.Install(t, programs...)
				if err := spoil(filepath.Join(dir, "coworker-box")); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := w.command(ctx, "exec", "--", "echo", "it ran")
				cmd.Path = filepath.Join(dir, "coworker")
				cmd.Args[0] = cmd.Path
				if e := w.finish(t, nil, cmd); e.code != 120 || e.out != "" || !strings.Contains(e.err, "hint: ") {
					t.Errorf("ended with %d, printed %q: %s", e.code, e.out, e.err)
				}
			})
		})
	}
}

// TestContainerLabels asks for labels that this host cannot give, and for some without a container: neither is left out.
func TestContainerLabels(t *testing.T) {
	root := testuser.All(t)[0]
	cases := map[string]string{"[container]\napparmor = \"a\"\n": "sets none"}
	for key, labels := range map[string]container.Labels{"apparmor": {AppArmor: "a"}, "selinux": {SELinux: "a"}} {
		if labels.Missing() != "" { // where the host has it, there is still no such profile
			cases["backend = \"container\"\n[container]\n"+key+" = \"a\"\n"] = "not in force"
		}
	}
	for settings, want := range cases {
		w := emptyWorld(t, root)
		if err := os.WriteFile(filepath.Join(w.own, "config/config.toml"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		if e := w.exec(t, nil, "echo", "it ran"); e.code != 120 || e.out != "" || !strings.Contains(e.err, want) || !strings.Contains(e.err, "hint: ") {
			t.Errorf("%q: ended with %d, printed %q: %s", settings, e.code, e.out, e.err)
		}
	}
}

// TestContainerOwner shows that the id map is the owner's in a container too.
func TestContainerOwner(t *testing.T) {
	inContainer(t, func(t *testing.T, w *world) {
		owner := testuser.Unprivileged(t)
		for _, dir := range []string{"", "home", "home/code"} {
			if err := os.Chmod(filepath.Join(w.base, dir), 0o711); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(w.work, owner.UID, owner.GID); err != nil {
			t.Fatal(err)
		}
		e := w.exec(t, nil, "sh", "-c", "id -u; id -G; cat /proc/self/uid_map; echo a > made")
		if f := strings.Fields(e.out); e.code != 0 || len(f) != 5 || f[0] != itoa(owner.UID) || f[1] != itoa(owner.GID) || f[2] != f[0] || f[3] != f[0] || f[4] != "1" {
			t.Errorf("ended with %d, printed %q: %s", e.code, e.out, e.err)
		}
	})
}

// TestContainerDies kills each process of the chain, and then two at once. Only what two deaths leave may wait for the next
// session.
func TestContainerDies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chain  []int // 0 the supervisor, 1 the helper, 2 the launcher, 3 the keeper, 4 the cell
		later  bool
		frozen bool
	}{
		{name: "supervisor", chain: []int{0}}, {name: "helper", chain: []int{1}}, {name: "launcher", chain: []int{2}},
		{name: "keeper", chain: []int{3}}, {name: "cell", chain: []int{4}}, {name: "supervisor-and-helper", chain: []int{0, 1}, later: true},
		{name: "helper-and-keeper", chain: []int{1, 3}}, {name: "supervisor-of-frozen", chain: []int{0}, frozen: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inContainer(t, func(t *testing.T, w *world) {
				before, mark := leftovers(t), "mark"+rand.Text()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := w.command(ctx, "exec", "-w", "--", "bash", "-c", strings.ReplaceAll(daemons, "MARK", mark)+"while :; do sleep 1; done")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				appears(t, mark+"\x00", 5)
				chain := descent(t, cmd.Process.Pid, 4)
				if tt.frozen {
					freeze(t, chain[4])
				}
				for _, i := range tt.chain {
					if err := unix.Kill(chain[i], unix.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
				cmd.Wait()
				if !gone(t, mark) {
					t.Errorf("LEAK: processes %v live on", marked(t, mark))
				}
				for _, pid := range chain {
					processEnds(t, pid)
				}
				if !tt.later {
					checkLeftovers(t, before)
				}
				if e := w.exec(t, nil, "true"); e.code != 0 {
					t.Errorf("the next session ended with %d: %s", e.code, e.err)
				}
				checkLeftovers(t, before)
			})
		})
	}
}

// freeze stops the session of a cell, as its supervisor does for a moment.
func freeze(t testing.TB, cell int) {
	t.Helper()
	data, err := os.ReadFile("/proc/" + itoa(cell) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	file, word := "", ""
	for line := range strings.Lines(string(data)) {
		switch f := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case f[1] == "freezer":
			file, word = "/sys/fs/cgroup/freezer"+f[2]+"/freezer.state", "FROZEN"
		case f[1] == "" && file == "":
			file, word = "/sys/fs/cgroup"+f[2]+"/cgroup.freeze", "1"
		}
	}
	if err := os.WriteFile(file, []byte(word), 0); err != nil {
		t.Fatal(err)
	}
}

// descent follows the first children of a process.
func descent(t testing.TB, pid, generations int) []int {
	t.Helper()
	chain := []int{pid}
	for range generations {
		files, err := filepath.Glob("/proc/" + itoa(pid) + "/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
		children := bytes.Fields(all)
		if len(children) == 0 {
			t.Fatalf("process %d has no child; chain %v", pid, chain)
		}
		if pid, err = strconv.Atoi(string(children[0])); err != nil {
			t.Fatal(err)
		}
		chain = append(chain, pid)
	}
	return chain
}

// processEnds waits until a process is gone, or nobody's any more but its reaper's.
func processEnds(t testing.TB, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for unix.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			t.Errorf("LEAK: process %d lives on", pid)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}
