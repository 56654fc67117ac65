package walls

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"io/fs"
	rand2 "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
)

// marked lists the processes of the machine that carry a mark in their command line.
func marked(t testing.TB, mark string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(data, []byte(mark)) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until no process carries the mark.
func gone(t testing.TB, mark string) bool {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(marked(t, mark)) > 0 {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// appears waits until n processes carry the mark.
func appears(t testing.TB, mark string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(marked(t, mark)) < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d processes carry the mark, want %d", len(marked(t, mark)), n)
		}
	}
}

// daemons leave processes behind in every way that shells know, each with the mark, and each deaf to SIGTERM.
const daemons = `m() { exec -a "MARK" sleep 100000; }; trap '' TERM HUP
m & (m &) ; setsid bash -c 'trap "" TERM HUP; exec -a MARK sleep 100000' & (setsid bash -c '(trap "" TERM HUP; exec -a MARK sleep 100000) & ' &) ; nohup bash -c 'exec -a MARK sleep 100000' >/dev/null 2>&1 &
`

// leftovers are what a session could leave on the machine beside processes.
func leftovers(t testing.TB) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		all["mount "+line] = true
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), "coworker") {
			all["cgroup "+path] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func checkLeftovers(t testing.TB, before map[string]bool) {
	t.Helper()
	for what := range leftovers(t) {
		if !before[what] {
			t.Errorf("left behind: %s", what)
		}
	}
}

// endings are the ways in which a session ends.
var endings = []struct {
	name  string
	flags []string
	tail  string
	end   func(process *os.Process) error // from outside, once the daemons run
	codes string
}{
	{"exit", nil, "echo up; exit 3", nil, "3"},
	{"timeout", []string{"--timeout", "2s"}, "while :; do sleep 1; done", nil, "124"},
	{"signal-self", nil, "sleep 0.2; kill -9 $$", nil, "137"},
	{"kill-all-inside", nil, "sleep 0.2; kill -9 -1", nil, "0 137"}, // kill(2) spares its caller
	{"supervisor-killed", nil, "while :; do sleep 1; done", (*os.Process).Kill, "-1"},
	{"supervisor-terminated", nil, "while :; do sleep 1; done", func(p *os.Process) error { return p.Signal(unix.SIGTERM) }, "143 130 125"},
	{"supervisor-interrupted", nil, "while :; do sleep 1; done", func(p *os.Process) error { return p.Signal(unix.SIGINT) }, "130 125"},
}

// TestLife ends sessions in every way, while processes inside do what they can to stay.
func TestLife(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		for _, tt := range endings {
			t.Run(tt.name, func(t *testing.T) {
				w := emptyWorld(t, u)
				mark := "mark" + rand.Text()
				before := leftovers(t)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				script := strings.ReplaceAll(daemons, "MARK", mark) + tt.tail
				cmd := w.command(ctx, append(append([]string{"exec", "-w"}, tt.flags...), "--", "bash", "-c", script)...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if tt.end != nil {
					appears(t, mark+"\x00", 5)
					if err := tt.end(cmd.Process); err != nil {
						t.Fatal(err)
					}
				}
				cmd.Wait()
				if code := strconv.Itoa(cmd.ProcessState.ExitCode()); !has(tt.codes, code) {
					t.Errorf("ended with %s, want %s: %s", code, tt.codes, errs.String())
				}
				if !gone(t, mark) {
					t.Errorf("LEAK: processes %v live on", marked(t, mark))
				}
				checkLeftovers(t, before)
				if e := w.exec(t, nil, "true"); e.code != 0 {
					t.Errorf("the next session ended with %d: %s", e.code, e.err)
				}
				checkLeftovers(t, before)
			})
		}
	})
}

// TestLifeControl shows that the same daemons live on where there is no wall.
func TestLifeControl(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		mark := "mark" + rand.Text()
		e := w.onHost(t, "exec 2>/dev/null >/dev/null </dev/null\n"+strings.ReplaceAll(daemons, "MARK", mark)+"exit 3")
		if e.code != 3 {
			t.Errorf("ended with %d: %s", e.code, e.err)
		}
		appears(t, mark+"\x00", 5)
		for _, pid := range marked(t, mark) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if !gone(t, mark) {
			t.Error("the daemons of the control were not killed")
		}
	})
}

// TestStreams sends much through a session and back, and looks at exit codes.
func TestStreams(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		data := make([]byte, 10<<20)
		if _, err := rand.Read(data); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := w.command(ctx, "exec", "--", "cat")
		cmd.Stdin = bytes.NewReader(data)
		e := w.finish(t, nil, cmd)
		if sha256.Sum256([]byte(e.out)) != sha256.Sum256(data) || e.code != 0 {
			t.Errorf("%d bytes came back of %d, code %d: %s", len(e.out), len(data), e.code, e.err)
		}
		for script, code := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137} {
			if e := w.exec(t, nil, "sh", "-c", script); e.code != code {
				t.Errorf("%s ended with %d, want %d: %s", script, e.code, code, e.err)
			}
		}
		if e := w.exec(t, nil, "no-such-program"); e.code != 127 || e.report.Started != nil {
			t.Errorf("an unknown program ended with %d, started %v", e.code, e.report.Started)
		}
		e = w.exec(t, nil, "sh", "-c", "echo $$; ls /proc | grep -c '^[0-9]'; readlink /proc/1/exe; for i in 1 2 3 4 5 6 7 8; do (sleep 0 &); done; sleep 0.1; ps -o stat= -e 2>/dev/null | grep -c Z || true")
		if f := strings.Fields(e.out); e.code != 0 || len(f) < 2 || len(f[0]) > 3 {
			t.Errorf("numbers inside: %q: %s", e.out, e.err)
		} else if zombies := f[len(f)-1]; zombies != "0" && zombies != f[1] {
			t.Errorf("%s orphans were not reaped", zombies)
		}
	})
}

// TestKilledSessions kills the supervisor at random moments of its life.
func TestKilledSessions(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) { killSessions(t, u, 50) })
}

// killSessions starts sessions and kills each within the time that one takes, while the command plants and writes.
// Afterwards one more session runs: with it nothing of the dead may be left.
func killSessions(t *testing.T, u testuser.User, n int) {
	w := newWorld(t, u)
	tree, left := take(t, w.base, "own"), leftovers(t)
	first := w.exec(t, nil, "true")
	own := names(t, filepath.Join(w.own, "state"))
	for i := range n {
		cmd := w.command(t.Context(), "exec", "-w", "--", "sh", "-c", "while :; do echo a > scratch/a; echo evil >> .mcp.json; done 2>/dev/null")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(rand2.Int64N(int64(2 * first.took)))) // the moment is the subject
		if err := cmd.Process.Kill(); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		cmd.Wait()
	}
	if !unmounted(t, w.base) {
		t.Error("LEAK: a cell of a killed supervisor lives on")
	}
	if e := w.exec(t, nil, "rm", "-f", "scratch/a"); e.code != 0 {
		t.Errorf("the next session ended with %d: %s", e.code, e.err)
	}
	checkLeftovers(t, left)
	if now := names(t, filepath.Join(w.own, "state")); !slices.Equal(own, now) {
		t.Errorf("the state folder held %q, and holds %q", own, now)
	}
	for _, name := range tree.changed(take(t, w.base, "own")) {
		if name != "." && !strings.HasSuffix(name, "/scratch") {
			t.Errorf("LEAK: %s was changed", name)
		}
	}
	w.coworker(t, "audit", "verify")
}

// names lists a folder of coworker's, without the files that SQLite makes and removes.
func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "-wal") && !strings.HasSuffix(e.Name(), "-shm") {
			out = append(out, e.Name())
		}
	}
	return out
}

// unmounted waits until no process sees a mount of a folder: then every cell on it is dead.
func unmounted(t testing.TB, dir string) bool {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(f string) bool {
			data, err := os.ReadFile(f)
			return err == nil && bytes.Contains(data, []byte(dir))
		}) {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
}

// TestResources asks for more than a session has.
func TestResources(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		for _, tt := range []struct {
			name, run string
			flags     []string
			part      string // of res, which may be missing on this machine: then the session is refused
			control   bool   // harmless outside
			want      func(e ended) bool
		}{
			{"fork-bomb", `python3 -c '
import os, time
n = 0
try:
    for i in range(200):
        if os.fork() == 0: time.sleep(2); os._exit(0)
        n += 1
    print("all")
except OSError as e: print(n, e.errno)'`, []string{"--pids", "50"}, "processes", true,
				func(e ended) bool { return strings.HasSuffix(e.out, " 11\n") }},
			{"memory", `python3 -c 'x = bytearray(400 << 20); print(len(x))'`, []string{"--memory", "128MiB"}, "memory", true,
				func(e ended) bool { return e.code != 0 && !strings.Contains(e.out, "4194") }},
			{"cpu", `python3 -c 'import time; t = time.process_time(); e = time.time() + 1.5
while time.time() < e: pass
print(int((time.process_time() - t) * 100))'`, []string{"--cpu", "0.25"}, "cpus", false,
				func(e ended) bool {
					n, err := strconv.Atoi(strings.TrimSpace(e.out))
					return err == nil && n < 90
				}},
			{"descriptors", `python3 -c '
import os
n = 0
try:
    while n < 2000000:
        os.dup(0); n += 1
except OSError as e: print(e.errno)'`, nil, "", false, func(e ended) bool { return strings.TrimSpace(e.out) == "24" }},
			{"tmp", `head -c 20000000000 /dev/zero > /dev/shm/a 2>/dev/null; stat -c %s /dev/shm/a`, []string{"--memory", "512MiB"}, "memory", false,
				func(e ended) bool { return e.code != 0 || len(strings.TrimSpace(e.out)) < 10 }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w := emptyWorld(t, u)
				before := leftovers(t)
				e := w.exec(t, tt.flags, "bash", "-c", tt.run)
				if e.code == 120 && tt.part != "" && strings.Contains(e.err, tt.part) {
					t.Logf("refused, because this machine cannot bound %s for %s: %s", tt.part, u, e.err)
				} else if !tt.want(e) {
					t.Errorf("ended with %d, printed %.200q: %.1000s", e.code, e.out, e.err)
				} else if tt.control && u.Root() && len(e.report.Denials) == 0 { // rlimits, all that others have, count no hits
					t.Errorf("the report names no limit: %.1000s", e.err)
				}
				checkLeftovers(t, before)
				if e := w.exec(t, nil, "true"); e.code != 0 {
					t.Errorf("the next session ended with %d: %s", e.code, e.err)
				}
				if !tt.control {
					return
				}
				if out := w.onHost(t, tt.run); tt.want(out) {
					t.Errorf("without a limit the same happens: %d, %q", out.code, out.out)
				}
			})
		}
	})
}
