package life

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/integration/life/plan"
)

// kill is one way in which a session ends before its time.
type kill struct {
	name     string
	graceful bool
	timeout  time.Duration
	do       func(s *supervisor)
}

func signalSupervisor(sig syscall.Signal) func(*supervisor) {
	return func(s *supervisor) { s.cmd.Process.Signal(sig) }
}

// signalBelow kills the keeper (depth 1) or the cell (depth 2). Before they exist it does nothing, and
// the session ends by itself.
func signalBelow(depth int) func(*supervisor) {
	return func(s *supervisor) {
		pids := []int{s.cmd.Process.Pid}
		for range depth {
			var next []int
			for _, p := range pids {
				next = append(next, childrenOf(p)...)
			}
			pids = next
		}
		for _, p := range pids {
			syscall.Kill(p, syscall.SIGKILL)
		}
	}
}

// killProxy kills the proxy of a session that has one.
func killProxy(s *supervisor) {
	for _, p := range childrenOf(s.cmd.Process.Pid) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)) // it ended meanwhile
		if strings.HasPrefix(string(command), proxyCommand) {
			syscall.Kill(p, syscall.SIGKILL)
		}
	}
}

func childrenOf(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, f := range tasks {
		data, _ := os.ReadFile(f) // it ended meanwhile
		for _, p := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(p); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

var kills = []kill{
	{"kill -9 of the supervisor", false, 0, signalSupervisor(syscall.SIGKILL)},
	{"kill -9 of the supervisor again", false, 0, signalSupervisor(syscall.SIGKILL)},
	{"SIGTERM without a handler", false, 0, signalSupervisor(syscall.SIGTERM)},
	{"SIGQUIT", false, 0, signalSupervisor(syscall.SIGQUIT)},
	{"cancelled by SIGTERM", true, 0, signalSupervisor(syscall.SIGTERM)},
	{"cancelled by SIGINT", true, 0, signalSupervisor(syscall.SIGINT)},
	{"cancelled by SIGHUP", true, 0, signalSupervisor(syscall.SIGHUP)},
	{"kill -9 of the keeper", false, 0, signalBelow(1)},
	{"kill -9 of the cell", false, 0, signalBelow(2)},
	{"time-out", false, 20 * time.Millisecond, func(*supervisor) {}},
	{"kill -9 of the proxy", false, 0, killProxy},
}

// murder starts a session that leaves processes of all kinds behind, and ends it at a random moment.
func murder(t *testing.T, u testuser.User, p plan.Place, k kill, after time.Duration) {
	t.Helper()
	script := `setsid sleep 300 & (sleep 300 &) ; trap "" TERM HUP INT; sleep 0.05; exec sleep "$1"`
	last := "0.05"
	if k.timeout > 0 {
		last = "300"
	}
	j := job{Place: p, Argv: []string{"/bin/sh", "-c", script, p.Workspace, last}, Graceful: k.graceful, Timeout: k.timeout, Repeat: 3}
	s := startDriver(t, u, filepath.Join(bin, "driver"), j)
	select {
	case <-s.done: // it was quicker
	case <-time.After(after):
		k.do(s)
	}
	s.wait(t)
}

func withNetwork(p plan.Place) plan.Place {
	p.Network = true
	return p
}

// killMany kills n sessions of one user at random points, two at a time, and looks for remains.
func killMany(t *testing.T, u testuser.User, n int) {
	random := rand.New(rand.NewPCG(uint64(n), uint64(u.UID)))
	p := userPlace(t, u)
	type one struct {
		k       kill
		network bool
		after   time.Duration
	}
	work := make(chan one)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for o := range work {
				if o.network {
					murder(t, u, withNetwork(p), o.k, o.after)
				} else {
					murder(t, u, p, o.k, o.after)
				}
			}
		})
	}
	for i := range n {
		o := one{kills[i%len(kills)], i%2 == 0, time.Duration(random.IntN(150)) * time.Millisecond}
		if i%3 == 0 {
			o.after /= 5 // half of the interesting moments are in the first milliseconds
		}
		work <- o
		if i%20 == 19 && t.Failed() {
			break
		}
	}
	close(work)
	workers.Wait()
	wantNothing(t, p)
	next := startDriver(t, u, filepath.Join(bin, "driver"), job{Place: withNetwork(p), Argv: []string{"/bin/true"}})
	if all := next.wait(t); next.err != nil || len(all) != 2 {
		t.Fatalf("the next session: %v %+v %s", next.err, all, next.text.String())
	}
	wantClean(t, p)
}

// TestKilledSessions kills 100 sessions. The same a thousand times is TestSoakKilledSessions.
func TestKilledSessions(t *testing.T) {
	users := testuser.All(t)
	for _, u := range users {
		t.Run(u.String(), func(t *testing.T) { killMany(t, u, 100/len(users)) })
	}
}

// TestRemainsAreFound shows that the search finds what it is for.
func TestRemainsAreFound(t *testing.T) {
	p := newPlace(t)
	cmd := exec.Command("/bin/sleep", "300")
	cmd.Args[0] = p.Workspace
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := processes(p)
	cmd.Process.Kill()
	cmd.Wait() // killed
	if len(found) != 1 {
		t.Errorf("processes: %v", found)
	}
	s := opened(t, p)
	if found := processes(p); len(found) < 2 {
		t.Errorf("an open session is not seen: %v", found)
	}
	s.Close()
	if err := os.MkdirAll(filepath.Join(p.State, "probe", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if found := files(p); len(found) != 1 {
		t.Errorf("files: %v", found)
	}
}
