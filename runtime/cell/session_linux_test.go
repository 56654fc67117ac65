package cell_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"coworker/runtime/wire"
)

// patience bounds every wait; it is far beyond what a loaded machine needs.
const patience = 30 * time.Second

// world is a kind of cell. All of them need a root test process: it creates cells of uid 4243.
type world struct {
	name string
	uid  uint32
}

var (
	subreaper  = world{"subreaper", 0}
	rootNS     = world{"pidns-withproc-root", 0}
	userNS     = world{"pidns-withproc-user", 4243}
	userNoProc = world{"pidns-noproc-user", 4243}
	rootNoProc = world{"pidns-noproc-root", 0}
	worlds     = []world{subreaper, rootNS, userNS, userNoProc, rootNoProc}
	namespaces = []world{rootNS, userNS, userNoProc, rootNoProc}
)

// session plays the supervisor.
type session struct {
	t       testing.TB
	uid     int
	conn    *wire.Conn
	launch  *exec.Cmd
	stderr  bytes.Buffer
	frames  chan *wire.Frame
	failed  error // why the receiver ended, valid when frames is closed
	backlog []*wire.Frame
	id      uint64
	over    bool
}

func each(t *testing.T, list []world, test func(t *testing.T, s *session)) {
	if os.Getuid() != 0 {
		t.Fatal("needs root: it starts cells of another user")
	}
	for _, w := range list {
		t.Run(w.name, func(t *testing.T) { test(t, open(t, w)) })
	}
}

// open starts a cell; the test's end closes the wire and expects it to end without complaint.
func open(t testing.TB, w world) *session {
	t.Helper()
	conn, peer, err := wire.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, uid: int(w.uid), conn: conn, frames: make(chan *wire.Frame, 1024)}
	s.launch = exec.Command(testBinary)
	s.launch.Env = []string{roleVar + "=launch:" + w.name}
	s.launch.Stderr = &s.stderr
	s.launch.ExtraFiles = []*os.File{peer}
	s.launch.Dir = "/"
	if w.uid != 0 {
		s.launch.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: w.uid, Gid: w.uid}}
	}
	if err := s.launch.Start(); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	var receiver sync.WaitGroup
	receiver.Go(func() {
		defer close(s.frames)
		for {
			f, err := conn.Receive()
			if err != nil {
				s.failed = err
				return
			}
			s.frames <- f
		}
	})
	t.Cleanup(func() {
		if !s.over {
			if code := s.end(); code != 0 {
				t.Errorf("cell ended with %d: %s", code, s.stderr.String())
			}
		}
		conn.Close()
		for f := range s.frames {
			f.Close()
		}
		receiver.Wait()
	})
	return s
}

// end closes the wire and waits for the cell. It returns the cell's exit code.
func (s *session) end() int {
	s.conn.Close()
	return s.wait()
}

// wait waits for the cell to end by itself.
func (s *session) wait() int {
	s.t.Helper()
	s.over = true
	timer := time.AfterFunc(patience, func() { s.launch.Process.Kill() })
	defer timer.Stop()
	s.launch.Wait()
	return s.launch.ProcessState.ExitCode()
}

func (s *session) send(t wire.Type, v any, files ...*os.File) {
	s.t.Helper()
	if err := s.conn.Send(t, v, files...); err != nil {
		s.t.Fatal(err)
	}
}

// await returns the next frame of one of the types whose id is id; others are kept.
func (s *session) await(id uint64, types ...wire.Type) *wire.Frame {
	s.t.Helper()
	matches := func(f *wire.Frame) bool {
		for _, t := range types {
			if f.Type == t && idOf(s.t, f) == id {
				return true
			}
		}
		return false
	}
	for i, f := range s.backlog {
		if matches(f) {
			s.backlog = append(s.backlog[:i], s.backlog[i+1:]...)
			return f
		}
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case f, ok := <-s.frames:
			if !ok {
				code := s.wait()
				s.t.Fatalf("waiting for %v of %d: wire ended: %v; cell ended with %d: %s", types, id, s.failed, code, s.stderr.String())
			}
			if matches(f) {
				return f
			}
			s.backlog = append(s.backlog, f)
		case <-timeout.C:
			s.t.Fatalf("waited %v for %v of %d", patience, types, id)
		}
	}
}

// idOf returns the id that a frame carries, 0 if its type has none.
func idOf(t testing.TB, f *wire.Frame) uint64 {
	t.Helper()
	switch f.Type {
	case wire.TypeStarted:
		return decode[wire.Started](t, f).ID
	case wire.TypeExited:
		return decode[wire.Exited](t, f).ID
	case wire.TypeExecFailed:
		return decode[wire.ExecFailed](t, f).ID
	case wire.TypeDialed:
		return decode[wire.Dialed](t, f).ID
	case wire.TypeDialFailed:
		return decode[wire.DialFailed](t, f).ID
	}
	return 0
}

func decode[T any](t testing.TB, f *wire.Frame) T {
	t.Helper()
	var v T
	if err := f.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// running is a command with pipes.
type running struct {
	s      *session
	id     uint64
	pid    int
	stdin  *os.File
	stdout *os.File
	stderr *os.File
}

func words(list ...string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func command(argv ...string) wire.Exec {
	return wire.Exec{Argv: words(argv...), Env: words("PATH=/usr/bin:/bin", "HOME=/"), Dir: []byte("/tmp")}
}

func shell(script string, args ...string) wire.Exec {
	return command(append([]string{"/bin/sh", "-c", script, "sh"}, args...)...)
}

// hostileCommand is the test binary as a command.
func hostileCommand(what string) wire.Exec {
	e := command(testBinary)
	e.Env = words(roleVar + "=command:" + what)
	return e
}

// request sends Exec with fresh pipes and keeps this side's ends.
func (s *session) request(e wire.Exec) *running {
	s.t.Helper()
	s.id++
	e.ID = s.id
	r := &running{s: s, id: e.ID}
	var child []*os.File
	for i, end := range []**os.File{&r.stdin, &r.stdout, &r.stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			s.t.Fatal(err)
		}
		if i == 0 {
			read, write = write, read
		}
		*end = read
		// A program that opens /dev/stderr needs the rights of the pipe's owner.
		if err := write.Chown(s.uid, s.uid); err != nil {
			s.t.Fatal(err)
		}
		child = append(child, write)
	}
	s.send(wire.TypeExec, e, child...)
	for _, f := range child {
		f.Close()
	}
	s.t.Cleanup(r.close)
	return r
}

func (r *running) close() {
	for _, f := range []*os.File{r.stdin, r.stdout, r.stderr} {
		f.Close()
	}
}

func (s *session) begin(e wire.Exec) *running {
	s.t.Helper()
	r := s.request(e)
	f := s.await(r.id, wire.TypeStarted, wire.TypeExecFailed)
	if f.Type == wire.TypeExecFailed {
		s.t.Fatalf("exec failed: %+v", decode[wire.ExecFailed](s.t, f))
	}
	r.pid = decode[wire.Started](s.t, f).Pid
	return r
}

func (r *running) exited() wire.Exited {
	r.s.t.Helper()
	return decode[wire.Exited](r.s.t, r.s.await(r.id, wire.TypeExited))
}

// line reads one line of output.
func (r *running) line() string {
	r.s.t.Helper()
	r.stdout.SetReadDeadline(time.Now().Add(patience))
	var line []byte
	var one [1]byte
	for {
		if _, err := r.stdout.Read(one[:]); err != nil {
			r.s.t.Fatalf("read line after %q: %v", line, err)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

type result struct {
	stdout, stderr []byte
	wire.Exited
}

// run runs a command to its end.
func (s *session) run(e wire.Exec, stdin []byte) result {
	s.t.Helper()
	r := s.begin(e)
	defer r.close()
	return r.finish(stdin)
}

func (r *running) finish(stdin []byte) result {
	r.s.t.Helper()
	var res result
	var wg sync.WaitGroup
	for _, f := range []*os.File{r.stdin, r.stdout, r.stderr} {
		f.SetDeadline(time.Now().Add(patience))
	}
	wg.Go(func() {
		r.stdin.Write(stdin)
		r.stdin.Close()
	})
	wg.Go(func() { res.stdout, _ = io.ReadAll(r.stdout) })
	wg.Go(func() { res.stderr, _ = io.ReadAll(r.stderr) })
	wg.Wait()
	res.Exited = r.exited()
	return res
}

func (s *session) killAll() int {
	s.t.Helper()
	s.send(wire.TypeKillAll, wire.Empty{})
	return decode[wire.Killed](s.t, s.await(0, wire.TypeKilled)).Processes
}
