package wallsd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/runtime/ward"
)

// serve runs a server in this process, and at the end of the test compares what is left with what was there.
func serve(t *testing.T, c Config, prepare func(*Server)) (socket string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the helper runs as root, and so must this test")
	}
	before := runtime.NumGoroutine()
	dir, err := os.MkdirTemp("", "wallsd")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(c)
	if prepare != nil {
		prepare(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%d goroutines before, %d after", before, now)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return socket
}

func name(t *testing.T) string {
	return "t" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
}

// sleeper starts a process that may join.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("setpriv", "--no-new-privs", "sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	})
	for range 500 {
		if data, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm"); err == nil && string(data) == "sleep\n" {
			return cmd
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("setpriv did not become sleep")
	return nil
}

// again makes a process with a number that was just given back (clone3, CLONE_SET_TID; Linux 5.5).
func again(t *testing.T, pid int) {
	t.Helper()
	set := int32(pid)
	args := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64 }{
		exitSignal: uint64(unix.SIGCHLD), setTID: uint64(uintptr(unsafe.Pointer(&set))), setTIDSize: 1,
	}
	got, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == 0 && got == 0 {
		// The child: a copy of this one thread, which may do nothing but call the kernel. It must not hold connections open.
		unix.RawSyscall(unix.SYS_CLOSE_RANGE, 3, uintptr(^uint32(0)), 0)
		for {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	if errno != 0 {
		t.Errorf("make process %d again: %v", pid, errno)
		return
	}
	t.Cleanup(func() {
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, 0, nil)
	})
}

// TestNumberUsedAgain: between the check and the move the process ends and another gets its number. That one is taken out,
// lives, and the session is over.
func TestNumberUsedAgain(t *testing.T) {
	cmd := sleeper(t)
	var inside atomic.Bool
	socket := serve(t, Config{}, func(s *Server) {
		s.checked = func(pid int) {
			cmd.Process.Kill()
			cmd.Wait() // killed; its number is free
			again(t, pid)
		}
		s.moved = func(pid int) { inside.Store(strings.Contains(groupsOf(pid), name(t))) }
	})
	c, err := Open(socket, ward.Request{Name: name(t), Limits: enforce.Limits{Processes: 5}})
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	err = c.Join(pid)
	if err == nil || !inside.Load() {
		t.Errorf("joined: %v; the other process was moved: %v, else nothing is shown", err, inside.Load())
	}
	select {
	case <-c.Fallen():
	case <-time.After(5 * time.Second):
		t.Error("the session goes on")
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	time.Sleep(100 * time.Millisecond)
	if s, err := readStat(pid); err != nil || s.dead {
		t.Errorf("the other process was killed: %+v, %v", s, err)
	}
	if in := groupsOf(pid); strings.Contains(in, name(t)) {
		t.Errorf("the other process is still in the group:\n%s", in)
	}
}

// TestEndedMeanwhile: between the check and the move the process ends, waited for or not.
func TestEndedMeanwhile(t *testing.T) {
	for _, waited := range []bool{false, true} {
		t.Run(strconv.FormatBool(waited), func(t *testing.T) {
			cmd := sleeper(t)
			var once sync.Once
			socket := serve(t, Config{}, func(s *Server) {
				s.checked = func(int) {
					once.Do(func() { cmd.Process.Kill() })
					if waited {
						cmd.Wait() // killed
					}
				}
			})
			c, err := Open(socket, ward.Request{Name: name(t)})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Join(cmd.Process.Pid); err == nil {
				t.Error("a dead process joined")
			}
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

func groupsOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestClient walks through a ward as a session does.
func TestClient(t *testing.T) {
	socket := serve(t, Config{Most: enforce.Limits{Processes: 50}, Build: "b"}, nil)
	if build, err := Ask(socket); err != nil || build != "b" {
		t.Errorf("ask: %q, %v", build, err)
	}
	c, err := Open(socket, ward.Request{Name: name(t), Limits: enforce.Limits{Processes: 500}})
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Limits(); len(l) != 1 || l[0].Value != 50 || !l[0].Active || l[0].Mechanism != enforce.Cgroup {
		t.Errorf("limits %+v, want 50 processes by the group", l)
	}
	if !c.State().Helper || !c.CanFreeze() {
		t.Errorf("state %+v, can freeze: %v", c.State(), c.CanFreeze())
	}
	cmd := sleeper(t)
	before := groupsOf(cmd.Process.Pid)
	if err := c.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := c.Guard([]enforce.Tree{{Path: "/nowhere\xff", Masks: make([]string, 20_000)}}); err != nil {
		t.Errorf("guard with a long list: %v", err)
	}
	if err := c.Freeze(5 * time.Second); err != nil {
		t.Error(err)
	}
	if err := c.Thaw(); err != nil {
		t.Error(err)
	}
	if err := c.Leave(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if after := groupsOf(cmd.Process.Pid); after != before {
		t.Errorf("left to\n%swant\n%s", after, before)
	}
	if err := c.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := cmd.Process.Wait(); err != nil {
		t.Errorf("what joined was not killed: %v", err)
	}
	if _, open := <-c.Refusals(); open {
		t.Error("a refusal after the end")
	}
	if _, open := <-c.Fallen(); open {
		t.Error("a wall fell by being removed")
	}
	if c.Counts() != (ward.Counts{}) {
		t.Errorf("counts %+v", c.Counts())
	}
	if _, err := Ask(filepath.Join(filepath.Dir(socket), "none")); err != ErrAbsent {
		t.Errorf("no helper: %v", err)
	}
}

// TestFileRights: what is looked at for a user is looked at with that user's rights, groups included.
func TestFileRights(t *testing.T) {
	dir := t.TempDir()
	for file, mode := range map[string]os.FileMode{"root": 0o600, "group": 0o640, "all": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(dir, "group"), 0, 4999); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]bool{"root": false, "group": true, "all": true} {
		p := &peer{uid: 4243, gid: 4243, groups: []uint32{4998, 4999}}
		err := p.as(func() error {
			f, err := os.Open(filepath.Join(dir, file))
			if err == nil {
				err = f.Close()
			}
			return err
		})
		if (err == nil) != want {
			t.Errorf("%s: %v, want to read it: %v", file, err, want)
		}
		if _, err := os.ReadFile(filepath.Join(dir, "root")); err != nil {
			t.Fatalf("this process lost its own rights: %v", err)
		}
	}
}

// TestLog: what users make the helper say is bounded in number and length, and what was left out is counted.
func TestLog(t *testing.T) {
	var out strings.Builder
	at := time.Unix(100, 0)
	l := NewLog(&out, func() time.Time { return at })
	for range 10 * perSecond {
		l.write(line{Op: "open", Verdict: "refused", Reason: strings.Repeat("x", 10_000)})
	}
	at = at.Add(time.Second)
	l.write(line{Op: "last", Verdict: "ok"})
	l.Close()
	l.write(line{Op: "late"})
	l.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != perSecond+1 || len(out.String()) > perSecond*(maxReason+200) {
		t.Errorf("%d lines of %d bytes", len(lines), out.Len())
	}
	if !strings.Contains(lines[len(lines)-1], `"left_out":1800`) {
		t.Errorf("the last line is %s", lines[len(lines)-1])
	}
}
