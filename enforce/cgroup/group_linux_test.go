package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// roleVar makes the test binary a process inside a group, or a supervisor that is killed.
const roleVar = "COWORKER_TEST_CGROUP"

func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv(roleVar), ":")
	switch role {
	case "":
		os.Exit(m.Run())
	case "fork":
		forkMany()
	case "eat":
		eat()
	case "busy":
		for spin := 0; ; spin++ { // uses a processor until it is stopped
			if spin < 0 {
				return
			}
		}
	case "count":
		count(arg)
	case "supervise":
		supervise(arg)
	}
	os.Exit(0)
}

// forkMany starts processes until one is refused.
func forkMany() {
	waitForStart()
	for range 200 {
		if _, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{}); err != nil {
			fmt.Println(errors.Is(err, syscall.EAGAIN), err)
			return
		}
	}
	fmt.Println("200 processes")
}

// eat touches more memory than the group may have.
func eat() {
	waitForStart()
	var all [][]byte
	for range 512 {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	fmt.Println("ate", len(all), "MiB")
}

// waitForStart lets the parent move this process into the group first.
func waitForStart() { bufio.NewReader(os.Stdin).ReadString('\n') }

// count writes an ever growing number into a shared mapping.
func count(file string) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		os.Exit(1)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		os.Exit(1)
	}
	for {
		page[0]++
	}
}

// supervise makes a group with a process in it and waits to be killed.
func supervise(name string) {
	g, err := New(name, enforce.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{})
	if err == nil {
		err = g.Join(p.Pid)
	}
	fmt.Println(p.Pid, err)
	select {}
}

// newGroup makes a group; the tests here need root, as only root can make one where nobody delegated it.
func newGroup(t *testing.T, l enforce.Limits) *Group {
	t.Helper()
	g, err := New("test-"+strconv.Itoa(os.Getpid())+"-"+strings.ReplaceAll(t.Name(), "/", "-"), l)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.dirs) == 0 {
		t.Fatalf("no group: %s", g.missing)
	}
	dirs := g.dirs
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, d := range dirs {
			if _, err := os.Stat(d.path); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", d.path, err)
			}
		}
	})
	return g
}

// member starts a role in the group.
func member(t *testing.T, g *Group, role string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVar + "=" + role}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed, or waited for already
	})
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in.Write([]byte("\n")) // the process may not read it
	return cmd, &out
}

func rootOnly(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	g, err := New("test-"+strconv.Itoa(os.Getpid()), enforce.Limits{Processes: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range g.Limits() {
		if !l.Active && l.Detail == "" {
			t.Errorf("limit %s is missing without a reason", l.Name)
		}
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	return false
}

func TestProcessLimit(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{Processes: 40})
	if l := g.Limits(); len(l) != 1 || !l[0].Active || l[0].Value != 40 || l[0].Mechanism != enforce.Cgroup {
		t.Fatalf("%+v", l)
	}
	cmd, out := member(t, g, "fork")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if !strings.HasPrefix(out.String(), "true") {
		t.Errorf("got %q, want EAGAIN", out)
	}
	if e := g.Events(); e.PidsMax < 1 {
		t.Errorf("%+v", e)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if e := g.Events(); e.PidsMax < 1 {
		t.Errorf("forgotten after Remove: %+v", e)
	}
}

func TestMemoryLimit(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{Memory: 64 << 20})
	cmd, out := member(t, g, "eat")
	if err := cmd.Wait(); err == nil || out.Len() > 0 {
		t.Errorf("it ended with %v and said %q", err, out)
	}
	if e := g.Events(); e.OOMKills < 1 {
		t.Errorf("%+v", e)
	}
}

func TestCPULimitIsSet(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{CPUs: 0.5})
	d, ok := g.with("cpu")
	if !ok {
		t.Fatalf("no cpu controller: %+v", g.Limits())
	}
	name, want := "cpu.cfs_quota_us", "50000"
	if d.unified {
		name, want = "cpu.max", "50000 100000"
	}
	if data, err := os.ReadFile(filepath.Join(d.path, name)); err != nil || strings.TrimSpace(string(data)) != want {
		t.Errorf("%s is %q, %v", name, data, err)
	}
}

// TestFreeze: nothing in a frozen group runs, not even for a moment, and all of it runs after Thaw.
func TestFreeze(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{})
	file := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		member(t, g, "count:"+file)
	}
	member(t, g, "busy")
	moves := func() bool {
		before := page[0]
		deadline := time.Now().Add(30 * time.Millisecond)
		for time.Now().Before(deadline) {
			if page[0] != before {
				return true
			}
		}
		return false
	}
	waitFor(t, "the processes run", moves)
	for range 20 {
		if err := g.Freeze(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		if moves() {
			t.Fatal("something runs in a frozen group")
		}
		if err := g.Thaw(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the processes run again", moves)
	}
	// Frozen as it is, it must be possible to end it.
	if err := g.Freeze(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if time.Since(begun) > 5*time.Second {
		t.Errorf("removing a frozen group takes %v", time.Since(begun))
	}
}

func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func TestKillFrozen(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{})
	cmd, _ := member(t, g, "busy")
	if err := g.Freeze(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v", err)
	}
}

func TestGroupsAtOnce(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			g, err := New(fmt.Sprintf("test-%d-at-once-%d", os.Getpid(), i), enforce.Limits{Processes: 10})
			if err != nil {
				t.Error(err)
				return
			}
			cmd := exec.Command("/bin/sleep", "300")
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(g.Join(cmd.Process.Pid), g.Remove()); err != nil {
				t.Error(err)
			}
			cmd.Wait() // killed by Remove
		})
	}
	all.Wait()
}

// TestStaleGroups: what a killed supervisor left goes with the next session, with what runs in it; the
// group of a living one stays.
func TestStaleGroups(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	live := newGroup(t, enforce.Limits{})
	name := fmt.Sprintf("test-%d-killed", os.Getpid())
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVar + "=supervise:" + name}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasSuffix(line, " <nil>\n") {
		t.Fatalf("%q %v", line, err)
	}
	stale := filepath.Join(filepath.Dir(live.dirs[0].path), name)
	if _, err := os.Stat(stale); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait() // killed
	pid, err := strconv.Atoi(strings.TrimSuffix(line, " <nil>\n"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := New(fmt.Sprintf("test-%d-next", os.Getpid()), enforce.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale group is left: %v", err)
	}
	if _, err := os.Stat(live.dirs[0].path); err != nil {
		t.Errorf("the group of a living supervisor: %v", err)
	}
	waitFor(t, "what ran in it is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
}

func TestJoinOfADeadProcess(t *testing.T) {
	if !rootOnly(t) {
		return
	}
	g := newGroup(t, enforce.Limits{})
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("got %v", err)
	}
}

// TestLeaveGoesHome: a process that joined goes back to where it was, not to where this process is, and nobody else is moved.
func TestLeaveGoesHome(t *testing.T) {
	first, second := newGroup(t, enforce.Limits{}), newGroup2(t)
	cmd, _ := member(t, first, "busy")
	if err := second.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := second.Leave(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, d := range first.dirs {
		data, err := os.ReadFile(filepath.Join(d.path, "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(data)) != strconv.Itoa(cmd.Process.Pid) {
			t.Errorf("%s holds %q, %v; want process %d back", d.path, data, err, cmd.Process.Pid)
		}
	}
	if err := second.Leave(cmd.Process.Pid); err == nil {
		t.Error("a process left that was not in the group")
	}
	if err := first.Expel(cmd.Process.Pid, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if err := first.Empty(0); err != nil {
		t.Errorf("after the expulsion: %v", err)
	}
}

func newGroup2(t *testing.T) *Group {
	t.Helper()
	g, err := New("test-second-"+strconv.Itoa(os.Getpid()), enforce.Limits{})
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

// TestEmptyWaits: when it returns, nothing of the group runs, frozen or not.
func TestEmptyWaits(t *testing.T) {
	g := newGroup(t, enforce.Limits{})
	cmd, _ := member(t, g, "busy")
	if err := g.Freeze(time.Second); err != nil {
		t.Fatal(err)
	}
	if err := g.Empty(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	state, err := cmd.Process.Wait()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the member ended as %v, %v", state, err)
	}
}
