package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/runtime/wire"
)

// fakeBackend starts a cell that is a sleeping process, for the supervisor's looks from outside, and a
// function of the test at the other end of the wire.
type fakeBackend struct {
	act func(c *fakeCell)
}

type fakeCell struct {
	*wire.Conn
	process *os.Process
}

func (fakeBackend) Name() enforce.BackendName { return enforce.Bare }

func (fakeBackend) Available(context.Context) enforce.Availability {
	return enforce.Availability{Backend: enforce.Bare, OK: true}
}

func (b fakeBackend) Start(_ context.Context, l enforce.Launch) (*enforce.Cell, error) {
	if _, err := l.Complete(); err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(l.CellWire.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = l.Join(cmd.Process.Pid)
	}
	if err != nil {
		return nil, err
	}
	c := &fakeCell{wire.NewConn(os.NewFile(uintptr(fd), "fake-cell")), cmd.Process}
	ended := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		cmd.Wait() // killed
		c.Close()  // as the kernel would
	})
	work.Go(func() { b.act(c) })
	go func() {
		work.Wait()
		close(ended)
	}()
	return &enforce.Cell{
		Pid: cmd.Process.Pid, Ended: ended, How: func() string { return "the fake cell ended" },
		Settled: func() error { return nil },
		Kill: func() error {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			<-ended
			return nil
		},
	}, nil
}

// ready plays the cell's part up to Ready.
func (c *fakeCell) ready() {
	c.Receive()
	c.Send(wire.TypeProved, wire.Proved{LandlockABI: 6})
	c.Receive()
	c.Send(wire.TypeReady, wire.Empty{})
}

// exec waits for a command, closes its pipes and returns its id.
func (c *fakeCell) exec() uint64 {
	f, err := c.Receive()
	if err != nil {
		return 0
	}
	defer f.Close()
	var e wire.Exec
	f.Decode(&e)
	return e.ID
}

// drain reads until the end, so that the supervisor's messages find room.
func (c *fakeCell) drain() {
	for {
		f, err := c.Receive()
		if err != nil {
			return
		}
		f.Close()
	}
}

type discard struct{}

func (discard) Attest(context.Context, []byte) (string, error) { return "id", nil }
func (discard) Record(context.Context, string, ...Event) error { return nil }

func fakeOptions(t *testing.T, act func(*fakeCell)) Options {
	t.Helper()
	work := t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(work, &st); err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return Options{
		Spec: enforce.Spec{
			Workspace: work, Trees: []enforce.Tree{{Path: work, Writable: true, Device: st.Dev, Inode: st.Ino}},
			Identity: enforce.Identity{UID: os.Geteuid(), GID: os.Getegid(), Home: "/home/nobody"}, Net: enforce.NetNone,
			HomeStore: t.TempDir(),
		},
		Backend: fakeBackend{act}, Program: program, StateDir: t.TempDir(), MinLevel: enforce.Partial,
		Recorder: discard{}, Notify: func(n Notice) { t.Log(n) }, Now: time.Now,
	}
}

// within fails the test if f takes longer.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s takes longer than %v", what, limit)
	}
}

// TestHostileCellBeforeReady: a cell that misbehaves while it proves itself gets no session.
func TestHostileCellBeforeReady(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		act        func(c *fakeCell)
	}{
		{"closes at once", "cell is gone", func(c *fakeCell) { c.Close() }},
		{"dies", "cell is gone", func(c *fakeCell) { c.Receive(); c.process.Kill() }},
		{"closes after Proved", "cell is gone", func(c *fakeCell) { c.Receive(); c.Send(wire.TypeProved, wire.Proved{}); c.Close() }},
		{"says Ready first", "violation", func(c *fakeCell) { c.Receive(); c.Send(wire.TypeReady, wire.Empty{}) }},
		{"speaks unasked", "", func(c *fakeCell) {
			c.Send(wire.TypeProved, wire.Proved{})
			c.Receive()
			c.Send(wire.TypeProved, wire.Proved{})
		}},
		{"says it failed", "raise the walls: no", func(c *fakeCell) {
			c.Receive()
			c.Send(wire.TypeFailed, wire.Failed{Step: "raise the walls", Reason: "no"})
		}},
		{"proves something else", "violation", func(c *fakeCell) { c.Receive(); c.Send(wire.TypeProved, wire.Exec{}) }},
		{"runs a command of its own", "violation", func(c *fakeCell) { c.Receive(); c.Send(wire.TypeExited, wire.Exited{}) }},
		{"is silent", "no answer to Begin", func(c *fakeCell) { c.drain() }},
		{"does not read", "no answer to Begin", func(*fakeCell) {}},
		{"is silent after Proved", "no answer to Commit", func(c *fakeCell) { c.Receive(); c.Send(wire.TypeProved, wire.Proved{}); c.drain() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			before := openFiles(t)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			o := fakeOptions(t, tt.act)
			within(t, 20*time.Second, "Open", func() {
				s, err := Open(ctx, o)
				var refused *RefusedError
				if !errors.As(err, &refused) || s != nil {
					t.Errorf("got a session: %v, %v", s != nil, err)
				} else if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
			o.Program.Close()
			goleak.VerifyNone(t, leaks)
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors are left, now %q", after-before, descriptorTargets())
			}
		})
	}
}

// TestHostileCell: a cell that misbehaves after Ready loses its session, in bounded time.
func TestHostileCell(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	long := strings.Repeat("x", 4<<20)
	for _, tt := range []struct {
		name, want string
		command    Command
		act        func(c *fakeCell)
	}{
		{"closes", "the fake cell ended", Command{}, func(c *fakeCell) { c.exec(); c.process.Kill() }},
		{"closes its wire and lives", "cell is gone", Command{}, func(c *fakeCell) { c.exec(); c.Close() }},
		{"is gone before", "fake cell ended", Command{}, func(c *fakeCell) { c.process.Kill() }},
		{"another id", "violation", Command{}, func(c *fakeCell) { c.Send(wire.TypeStarted, wire.Started{ID: c.exec() + 1}) }},
		{"ends before it starts", "violation", Command{}, func(c *fakeCell) {
			id := c.exec()
			c.Send(wire.TypeExited, wire.Exited{ID: id})
			c.Send(wire.TypeStarted, wire.Started{ID: id})
		}},
		{"starts twice", "violation", Command{}, func(c *fakeCell) {
			id := c.exec()
			c.Send(wire.TypeStarted, wire.Started{ID: id})
			c.Send(wire.TypeStarted, wire.Started{ID: id})
		}},
		{"extra descriptors", "violation", Command{}, func(c *fakeCell) { c.Send(wire.TypeStarted, wire.Started{ID: c.exec()}, null, null) }},
		{"says it is stopped", "violation", Command{}, func(c *fakeCell) { c.exec(); c.Send(wire.TypeStopped, wire.Stopped{}) }},
		{"terminal without a pty", "no terminal", Command{Terminal: &Terminal{Out: &bytes.Buffer{}}}, func(c *fakeCell) { c.Send(wire.TypeStarted, wire.Started{ID: c.exec()}) }},
		{"never starts", "did not start", Command{}, func(c *fakeCell) { c.drain() }},
		{"never ends", "outlived SIGKILL", Command{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond}, func(c *fakeCell) { c.Send(wire.TypeStarted, wire.Started{ID: c.exec()}); c.drain() }},
		{"does not read", "did not read", Command{Argv: []string{long}}, func(*fakeCell) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(context.Background(), fakeOptions(t, func(c *fakeCell) { c.ready(); tt.act(c) }))
			if err != nil {
				t.Fatal(err)
			}
			within(t, 2*startLimit, "Run", func() {
				if tt.command.Argv == nil {
					tt.command.Argv = []string{"x"}
				}
				r, err := s.Run(context.Background(), tt.command)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %+v, %v; want %q", r, err, tt.want)
				}
				if _, err := s.Run(context.Background(), Command{Argv: []string{"x"}}); err == nil {
					t.Error("the session goes on")
				}
			})
			within(t, 15*time.Second, "the end of the cell", func() { <-s.cell.Ended })
			within(t, 15*time.Second, "Close", func() {
				if err := errors.Join(s.Close(), s.Close()); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}

// TestCellAnswersStrangely: what a cell may say, however odd, is a result and no end.
func TestCellAnswersStrangely(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(c *fakeCell, id uint64)
		want Result
	}{
		{"not found", func(c *fakeCell, id uint64) {
			c.Send(wire.TypeExecFailed, wire.ExecFailed{ID: id, Errno: 2, Reason: "no"})
		}, Result{Code: 127, Reason: "no"}},
		{"odd error number", func(c *fakeCell, id uint64) { c.Send(wire.TypeExecFailed, wire.ExecFailed{ID: id, Errno: -5}) }, Result{Code: 126}},
		{"odd signal", func(c *fakeCell, id uint64) {
			c.Send(wire.TypeStarted, wire.Started{ID: id})
			c.Send(wire.TypeExited, wire.Exited{ID: id, Code: -1, Signal: 9})
		}, Result{Code: 137, Signal: 9, Started: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(context.Background(), fakeOptions(t, func(c *fakeCell) { c.ready(); tt.act(c, c.exec()); c.drain() }))
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Run(context.Background(), Command{Argv: []string{"x"}})
			r.Elapsed = 0
			if err != nil || r != tt.want {
				t.Errorf("got %+v, %v; want %+v", r, err, tt.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloseWhileCommandsRun: everybody who waits is woken.
func TestCloseWhileCommandsRun(t *testing.T) {
	s, err := Open(context.Background(), fakeOptions(t, func(c *fakeCell) {
		c.ready()
		for id := c.exec(); id != 0; id = c.exec() {
			c.Send(wire.TypeStarted, wire.Started{ID: id})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	const commands = 20
	results := make(chan error, commands)
	for range commands {
		go func() {
			_, err := s.Run(context.Background(), Command{Argv: []string{"x"}})
			results <- err
		}()
	}
	within(t, 20*time.Second, "Close", func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for range commands {
			if err := <-results; err == nil {
				t.Error("a command ended well in a session that was closed")
			}
		}
	})
	if _, err := s.Run(context.Background(), Command{Argv: []string{"x"}}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(Closed)) {
		t.Errorf("run in a closed session: %v", err)
	}
}
