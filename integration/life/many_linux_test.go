package life

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coworker/integration/life/plan"
	"coworker/runtime/session"
)

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// resident is the resident memory of a process in KiB.
func resident(t testing.TB, pid string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestLongLivedSupervisor opens and closes 200 sessions in this process.
func TestLongLivedSupervisor(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := newPlace(t)
		round := func() {
			s, err := open(t, p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/true"}}); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		round()
		leaks, before := goleak.IgnoreCurrent(), descriptors(t)
		for range 200 {
			round()
			if t.Failed() {
				break
			}
		}
		goleak.VerifyNone(t, leaks)
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
		wantClean(t, p)
	})
}

// TestManySessions opens 50 sessions at once, in workspaces of their own and two in each.
func TestManySessions(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		leaks, before := goleak.IgnoreCurrent(), descriptors(t)
		p := newPlace(t)
		var open, closed sync.WaitGroup
		all := make(chan struct{})
		for i := range 50 {
			mine := p
			mine.Workspace = filepath.Join(p.Workspace, strconv.Itoa(i/2))
			mine.Store = filepath.Join(p.Store, strconv.Itoa(i/2))
			if err := os.MkdirAll(mine.Workspace, 0o700); err != nil {
				t.Fatal(err)
			}
			open.Add(1)
			closed.Go(func() {
				s, err := oneOfMany(t, mine, i)
				open.Done()
				if err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
				<-all
				if out, r := sh(t, s, "cat mine-* | sort"); r.Code != 0 || !strings.Contains(out, fmt.Sprintf("session %d\n", i)) {
					t.Errorf("session %d: %q %+v", i, out, r)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close %d: %v", i, err)
				}
			})
		}
		open.Wait()
		close(all)
		closed.Wait()
		goleak.VerifyNone(t, leaks)
		if after := descriptors(t); after > before+1 { // the cell's binary stays open
			t.Errorf("%d descriptors before, %d after", before, after)
		}
		wantNothing(t, p)
	})
}

func oneOfMany(t *testing.T, p plan.Place, i int) (*session.Session, error) {
	s, err := open(t, p)
	if err != nil {
		return nil, err
	}
	r, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/sh", "-c", `echo "session $1" >"mine-$1"`, "sh", strconv.Itoa(i)}})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("write: %+v", r)
	}
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	return s, err
}

// TestTwoSessionsInOneWorkspace: each sees the other's files and none of its processes.
func TestTwoSessionsInOneWorkspace(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := newPlace(t)
		a, b := opened(t, p), opened(t, p)
		if _, r := sh(t, a, "echo a >from-a; sleep 300 & exit 0"); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		if out, r := sh(t, b, "cat from-a; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q 's[l]eep 300' && exit 1; exit 0"); r.Code != 0 || out != "a\n" {
			t.Errorf("%q %+v", out, r)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if out, r := sh(t, b, "echo still here"); r.Code != 0 || out != "still here\n" {
			t.Errorf("after the other one is closed: %q %+v", out, r)
		}
	})
}

// TestWarmSession runs 2,000 commands in one session.
func TestWarmSession(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		s := opened(t, newPlace(t))
		run := func(n int) {
			for range n {
				r, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/echo", "x"}, Stdout: io.Discard})
				if err != nil || r.Code != 0 {
					t.Fatalf("%+v %v", r, err)
				}
			}
		}
		inside := func() int {
			out, _ := sh(t, s, "ls /proc/self/fd | wc -l")
			n, err := strconv.Atoi(strings.TrimSpace(out))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		run(200)
		runtime.GC()
		fds, mine := descriptors(t), resident(t, "self")
		below := inside()
		run(1800)
		runtime.GC()
		if after := descriptors(t); after > fds {
			t.Errorf("%d descriptors before, %d after", fds, after)
		}
		if after := inside(); after > below {
			t.Errorf("a command gets %d descriptors, got %d before", after, below)
		}
		if after := resident(t, "self"); after > mine+16<<10 {
			t.Errorf("resident memory grew from %d to %d KiB", mine, after)
		}
	})
}

// TestBackgroundProcesses: a command is over when it is over, whatever it leaves behind.
func TestBackgroundProcesses(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		s := opened(t, newPlace(t))
		begun := time.Now()
		out, r := sh(t, s, "sleep 300 & (setsid sleep 300 &); (sleep 300 <&0 &); echo done")
		if r.Code != 0 || out != "done\n" || time.Since(begun) > 20*time.Second {
			t.Errorf("%q %+v after %v", out, r, time.Since(begun))
		}
		if out, _ := sh(t, s, "echo still works"); out != "still works\n" {
			t.Errorf("afterwards: %q", out)
		}
	})
}

// slowWriter takes a little at a time and counts.
type slowWriter struct {
	n     atomic.Int64
	pause time.Duration
	once  sync.Once
	begun chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	timer := time.NewTimer(w.pause)
	<-timer.C
	w.n.Add(int64(len(p)))
	return len(p), nil
}

// TestSlowReaderGetsEverything: output waits for who reads it, and none of it is lost at the end.
func TestSlowReaderGetsEverything(t *testing.T) {
	s := opened(t, newPlace(t))
	for _, n := range []int{1000, 60_000, 1_000_000} {
		w := &slowWriter{pause: 150 * time.Millisecond, begun: make(chan struct{})}
		r, err := s.Run(context.Background(), session.Command{
			Argv: []string{"/usr/bin/head", "-c", strconv.Itoa(n), "/dev/zero"}, Stdout: w,
		})
		if err != nil || r.Code != 0 || w.n.Load() != int64(n) {
			t.Errorf("%d of %d bytes, %+v %v", w.n.Load(), n, r, err)
		}
	}
}

// TestFloodIsHeldBack: a flood does not grow the supervisor, and ends when it is cancelled.
func TestFloodIsHeldBack(t *testing.T) {
	s := opened(t, newPlace(t))
	before := resident(t, "self")
	w := &slowWriter{pause: time.Millisecond, begun: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := s.Run(ctx, session.Command{Argv: []string{"/bin/cat", "/dev/zero"}, Stdout: w})
	if err != nil || r.Signal != 15 {
		t.Errorf("%+v %v", r, err)
	}
	if after := resident(t, "self"); after > before+32<<10 {
		t.Errorf("resident memory grew from %d to %d KiB after %d bytes", before, after, w.n.Load())
	}
}

// TestStdinStreams pushes 100 MB through a command.
func TestStdinStreams(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		s := opened(t, newPlace(t))
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const size = 100 << 20
		go func() {
			defer w.Close()
			chunk := make([]byte, 1<<20)
			for range size / len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}()
		var out bytes.Buffer
		result, err := s.Run(context.Background(), session.Command{Argv: []string{"/usr/bin/wc", "-c"}, Stdin: r, Stdout: &out})
		if err != nil || result.Code != 0 || strings.TrimSpace(out.String()) != strconv.Itoa(size) {
			t.Errorf("%q %+v %v", out.String(), result, err)
		}
	})
}

// TestStdinThatNobodyReads: a process that is left behind with the other end does not hold the command.
func TestStdinThatNobodyReads(t *testing.T) {
	s := opened(t, newPlace(t))
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/sh", "-c", "exec 3<&0; sleep 300 <&3 & exit 0"}, Stdin: zero})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the command does not end")
	}
}

// TestCancel ends commands in the middle of what they do; the session goes on.
func TestCancel(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		s := opened(t, newPlace(t))
		for _, tt := range []struct {
			name, script string
			signal       int
		}{
			{"sleeping", "exec sleep 300", 15},
			{"writing", "exec cat /dev/zero", 15},
			{"deaf", `trap "" TERM; while :; do sleep 0.1; done`, 9},
			{"output closed", "exec >&- 2>&-; exec sleep 300", 15},
			{"stopped", "kill -STOP $$; sleep 300", 9},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			r, err := s.Run(ctx, session.Command{Argv: []string{"/bin/sh", "-c", tt.script}, Stdout: io.Discard, Grace: 200 * time.Millisecond})
			cancel()
			if err != nil || r.Signal != tt.signal {
				t.Errorf("%s: %+v %v", tt.name, r, err)
			}
		}
		if out, _ := sh(t, s, "echo fine"); out != "fine\n" {
			t.Errorf("afterwards: %q", out)
		}
	})
}

// TestCellUnderAttack: what is inside cannot end the session by the usual signals; if a cell ends all the
// same, everybody is told and nothing is left.
func TestCellUnderAttack(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := newPlace(t)
		s := opened(t, p)
		sh(t, s, "kill -9 1; kill -TERM 1; kill -STOP 1; kill -SEGV 1; for i in 1 2 3 10 12 15 17 18; do kill -$i 1; done; kill -9 -1")
		if out, _ := sh(t, s, "echo alive"); out != "alive\n" {
			t.Errorf("the cell was hurt: %q", out)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/sleep", "300"}})
			waiting <- err
		}()
		for _, keeper := range childrenOf(os.Getpid()) {
			for _, cell := range childrenOf(keeper) {
				if eventuallyHas(func() bool { return len(childrenOf(cell)) > 0 }) {
					killProcess(t, cell)
				}
			}
		}
		var lost *session.LostError
		select {
		case err := <-waiting:
			if !errors.As(err, &lost) || !strings.Contains(err.Error(), "signal 9") {
				t.Errorf("got %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("nobody is told that the cell ended")
		}
		if _, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/true"}}); err == nil {
			t.Error("a session without a cell runs a command")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantClean(t, p)
	})
}

// eventuallyHas waits for something that is about to happen.
func eventuallyHas(f func() bool) bool {
	return len(eventually(func() []string {
		if f() {
			return nil
		}
		return []string{"not yet"}
	})) == 0
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}
