package cell_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// screen is a command with a terminal.
type screen struct {
	s      *session
	id     uint64
	master *os.File
	seen   bytes.Buffer
}

func (s *session) beginTTY(e wire.Exec) *screen {
	s.t.Helper()
	s.id++
	e.ID, e.TTY, e.Rows, e.Cols = s.id, true, 24, 80
	s.send(wire.TypeExec, e)
	f := s.await(s.id, wire.TypeStarted, wire.TypeExecFailed)
	if f.Type != wire.TypeStarted || len(f.Files) != 1 {
		s.t.Fatalf("%s %s with %d descriptors", f.Type, f.Body, len(f.Files))
	}
	t := &screen{s: s, id: s.id, master: f.Files[0]}
	s.t.Cleanup(func() { t.master.Close() })
	return t
}

// expect reads until text appears and drops everything up to its end.
func (t *screen) expect(text string) {
	t.s.t.Helper()
	if err := t.master.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.s.t.Fatalf("the master cannot be polled: %v", err)
	}
	buf := make([]byte, 4096)
	for {
		if i := bytes.Index(t.seen.Bytes(), []byte(text)); i >= 0 {
			t.seen.Next(i + len(text))
			return
		}
		n, err := t.master.Read(buf)
		t.seen.Write(buf[:n])
		if err != nil {
			t.s.t.Fatalf("waiting for %q: %v after %q", text, err, t.seen.String())
		}
	}
}

func (t *screen) keys(text string) {
	t.s.t.Helper()
	if _, err := t.master.WriteString(text); err != nil {
		t.s.t.Fatal(err)
	}
}

func (t *screen) exited() wire.Exited {
	t.s.t.Helper()
	return decode[wire.Exited](t.s.t, t.s.await(t.id, wire.TypeExited))
}

func TestTerminal(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		tty := s.beginTTY(shell("test -t 0 && test -t 1 && test -t 2 && echo is-tty; stty size; : >/dev/tty && echo controlling; trap 'stty size' WINCH; echo ready; while :; do read x || :; done"))
		tty.expect("is-tty")
		tty.expect("24 80")
		tty.expect("controlling")
		tty.expect("ready")
		s.send(wire.TypeResize, wire.Resize{ID: tty.id, Rows: 50, Cols: 132})
		tty.expect("50 132")
		tty.keys("\x03")
		if got := tty.exited(); got.Signal != int(unix.SIGINT) {
			t.Errorf("^C: %+v", got)
		}
	})
}

func TestInteractiveBash(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		e := command("bash", "--norc", "--noprofile", "-i")
		e.Env = words("PATH=/usr/bin:/bin", "PS1=$ ", "TERM=dumb", "HOME=/", "HISTFILE=")
		tty := s.beginTTY(e)
		tty.keys("echo $((6*7))\n")
		tty.expect("\r\n42\r\n")
		// The job speaks when it handles signals; before that a ^Z is lost, here as anywhere.
		tty.keys("sh -c 'echo r\"\"eady; exec sleep 1000'\n")
		tty.expect("ready\r\n")
		tty.keys("\x1a")
		tty.expect("Stopped")
		tty.keys("bg\n")
		tty.expect(" &\r\n")
		tty.keys("jobs\n")
		tty.expect("Running")
		tty.keys("fg\n")
		waitForeground(t, tty)
		tty.keys("\x03")
		tty.expect("$ ")
		tty.keys("exit 5\n")
		if got := tty.exited(); got.Code != 5 {
			t.Errorf("%+v", got)
		}
	})
}

// waitForeground waits until a job other than the shell owns the terminal, for which the kernel has
// no event.
func waitForeground(t *testing.T, tty *screen) {
	t.Helper()
	raw, err := tty.master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var shell int
	for deadline := time.Now().Add(patience); ; {
		var group int
		raw.Control(func(fd uintptr) {
			shell, _ = unix.IoctlGetInt(int(fd), unix.TIOCGSID)
			group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP)
		})
		if err == nil && group != shell {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no job came to the foreground: group %d, shell %d, %v", group, shell, err)
		}
		unix.Poll(nil, 1)
	}
}

func TestStopAndContinueLeaveJobControlAlone(t *testing.T) {
	each(t, []world{subreaper, rootNS, userNS}, func(t *testing.T, s *session) {
		e := command("bash", "--norc", "--noprofile", "-i")
		e.Env = words("PATH=/usr/bin:/bin", "PS1=$ ", "TERM=dumb", "HOME=/", "HISTFILE=")
		tty := s.beginTTY(e)
		tty.keys("cat\n")
		tty.expect("cat\r\n")
		waitForeground(t, tty)
		for range 20 {
			s.send(wire.TypeStop, wire.Empty{})
			s.await(0, wire.TypeStopped)
			s.send(wire.TypeContinue, wire.Empty{})
			s.await(0, wire.TypeContinued)
		}
		tty.keys("still here\n")
		tty.expect("still here\r\nstill here\r\n")
		tty.keys("\x1a")
		tty.expect("Stopped")
		s.send(wire.TypeStop, wire.Empty{})
		s.await(0, wire.TypeStopped)
		s.send(wire.TypeContinue, wire.Empty{})
		s.await(0, wire.TypeContinued)
		tty.keys("jobs\n")
		tty.expect("Stopped") // what the person stopped stays so
		if strings.Contains(tty.seen.String(), "Running") {
			t.Errorf("a stopped job was continued: %q", tty.seen.String())
		}
	})
}

func TestSignalReachesEveryJobOfATerminal(t *testing.T) {
	each(t, []world{subreaper, rootNS, userNS}, func(t *testing.T, s *session) {
		e := command("bash", "--norc", "--noprofile", "-i")
		e.Env = words("PATH=/usr/bin:/bin", "PS1=$ ", "TERM=dumb", "HOME=/", "HISTFILE=")
		tty := s.beginTTY(e)
		tty.keys("sleep 1000 & sleep 1001 & cat\n")
		tty.expect("cat\r\n")
		waitForeground(t, tty)
		s.send(wire.TypeSignal, wire.Signal{ID: tty.id, Signal: int(unix.SIGKILL)})
		if got := tty.exited(); got.Signal != int(unix.SIGKILL) {
			t.Errorf("%+v", got)
		}
		left := -1
		for deadline := time.Now().Add(patience); left != 0 && time.Now().Before(deadline); {
			s.send(wire.TypeStop, wire.Empty{})
			left = decode[wire.Stopped](t, s.await(0, wire.TypeStopped)).Processes
		}
		if left != 0 {
			t.Errorf("%d jobs outlived the signal", left)
		}
	})
}
