package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
)

// Exit codes of coworker that the cases want: the walls did not hold, and a command that was ended by its input's end.
const (
	exitWalls = 120
	exitFine  = 0
)

// faults break the proxy of a session. The two names do so in a build with the tag walltest alone.
var faults = []struct {
	name   string
	faulty bool   // which build
	ask    string // what the program inside asks the proxy for
	kill   bool   // the proxy is killed from outside
	code   int
	reason string // in the record and on standard error; empty if the session goes on
}{
	{"killed", false, "ok.test:443", true, exitWalls, "the proxy ended: signal: killed"},
	{"panics", true, "fault-panic.probe.internal:443", false, exitWalls, "the proxy ended: exit status 2: panic: a fault that was asked for"},
	{"closes its listeners", true, "fault-close.probe.internal:443", false, exitWalls, "the proxy ended: exit status 1: coworker-proxy: accept on"},
	{"panic asked of a release", false, "fault-panic.probe.internal:443", false, exitFine, ""},
	{"closing asked of a release", false, "fault-close.probe.internal:443", false, exitFine, ""},
	{"nothing asked of a faulty build", true, "ok.test:443", false, exitFine, ""},
}

// TestProxyEnds ends the proxy in the middle of a session. The session must end with it, and say why.
func TestProxyEnds(t *testing.T) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			eachUser(t, func(t *testing.T, u testuser.User) {
				programs := built
				if tt.faulty {
					var err error
					if programs, err = faulty(); err != nil {
						t.Fatal(err)
					}
				}
				s := startSession(t, u, programs, tt.ask)
				if tt.kill {
					if err := unix.Kill(s.proxy(t), unix.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
				s.goOn(t, tt.reason == "")
				s.want(t, tt.code, tt.reason)
			})
		})
	}
}

// session is a running coworker whose program waits for a word.
type session struct {
	world    *world
	programs string
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	stdout   *bufio.Reader
	stderr   bytes.Buffer
	held     []unix.PollFd // one for each process
	group    uint64        // id of its control group; 0: not asked yet
}

func startSession(t *testing.T, u testuser.User, programs, ask string) *session {
	t.Helper()
	s := &session{world: newWorld(t, u, "fault"), programs: programs}
	w := s.world
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s.cmd = w.command(ctx, filepath.Join(programs, "coworker"), "exec", "-w", "--report", w.reportFile(), "--allow", "ok.test:443=203.0.113.0/24", "--",
		w.smuggler(), "-connect", "127.0.0.1:3128", ask)
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout, s.cmd.Stderr = bufio.NewReader(out), &s.stderr
	if err := w.hosts.n.onHost(s.cmd.Start); err != nil {
		t.Fatal(err)
	}
	if line, err := s.stdout.ReadString('\n'); line != "ready\n" {
		s.cmd.Wait()
		t.Fatalf("the program inside said %q: %v: %s", line, err, s.stderr.String())
	}
	s.hold(t)
	return s
}

// proxy finds the proxy of the session.
func (s *session) proxy(t *testing.T) int {
	t.Helper()
	below, err := descendants(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(below, func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.HasPrefix(string(line), "coworker-proxy\x00")
	})
	if i < 0 {
		t.Fatalf("none of the processes %v is the proxy", below)
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", below[i])); s.world.user.Root() && (err != nil || strings.Contains(string(status), "\nUid:\t0\t")) {
		t.Errorf("the proxy of root runs as root (%v)", err)
	}
	return below[i]
}

// goOn lets the program ask. If nothing is to happen, its input ends after the answer, and so does the session.
func (s *session) goOn(t *testing.T, ends bool) {
	t.Helper()
	if _, err := io.WriteString(s.stdin, "\n"); err != nil && ends {
		t.Errorf("the session ended by itself: %v", err)
	}
	line, _ := s.stdout.ReadString('\n')
	if ends {
		if !strings.HasPrefix(line, "asked: ") {
			t.Errorf("the program inside said %q", line)
		}
		s.stdin.Close()
	}
}

// want waits for the end. The input of the program stays open, so that only the session itself can end it.
func (s *session) want(t *testing.T, code int, reason string) {
	t.Helper()
	s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d: %s", got, code, s.stderr.String())
	}
	if r := s.world.report(t, &s.stderr); r.ExitCode != code {
		t.Errorf("the report has exit code %d, want %d", r.ExitCode, code)
	}
	if !strings.Contains(s.stderr.String(), reason) {
		t.Errorf("standard error does not say %q: %s", reason, s.stderr.String())
	}
	status := "ok"
	if reason != "" {
		status = "error"
	}
	rows := s.rows(t)
	if i := slices.IndexFunc(rows, func(r row) bool { return r.Stage == "exec" && r.Status == status && strings.Contains(r.Reason, reason) }); i < 0 {
		t.Errorf("no row of stage exec and status %s says %q: %+v", status, reason, rows)
	}
	s.wantNoneLeft(t)
}

// hold keeps a handle of every process of the session, so that their numbers stay theirs.
func (s *session) hold(t *testing.T) {
	t.Helper()
	below, err := descendants(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range below {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue // it has ended already
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		s.held = append(s.held, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) // readable when it has ended (pidfd_open(2))
	}
	if len(s.held) < 3 {
		t.Errorf("the session has the processes %v, want a cell, a program and a proxy at least", below)
	}
}

// wantNoneLeft wants all of them ended when coworker has.
func (s *session) wantNoneLeft(t *testing.T) {
	t.Helper()
	for i := range s.held {
		if n, err := unix.Poll(s.held[i:i+1], 0); err != nil || n != 1 {
			t.Errorf("process %d of %d of the session outlives it (%v)", i+1, len(s.held), err)
		}
	}
}

// row is what the cases read of the record.
type row struct {
	Stage  string `json:"stage"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func (s *session) rows(t *testing.T) []row {
	t.Helper()
	return s.world.rows(t, s.programs)
}

func (w *world) rows(t *testing.T, programs string) []row {
	t.Helper()
	out, err := w.command(t.Context(), filepath.Join(programs, "coworker"), "audit", "list", "--json").Output()
	var rows []row
	if err == nil {
		err = json.Unmarshal(out, &rows)
	}
	if err != nil {
		t.Fatalf("the record: %v: %s", err, out)
	}
	return rows
}
