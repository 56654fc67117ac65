package cell_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// soon is a moment by which a stopped process would have answered if it could.
func soon() time.Time { return time.Now().Add(50 * time.Millisecond) }

func frame(typ wire.Type, files uint16, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.LittleEndian.AppendUint16(b, uint16(typ))
	b = binary.LittleEndian.AppendUint16(b, files)
	return append(b, body...)
}

// bytesToCell starts a cell of a world, writes bytes with descriptors to its wire, closes it and
// returns how the cell ended.
func bytesToCell(t *testing.T, world string, bytes []byte, files int) (code int, stderr string) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := os.NewFile(uintptr(fds[1]), "peer")
	defer peer.Close()
	var errors strings.Builder
	cell := exec.Command(testBinary)
	cell.Env = []string{roleVar + "=launch:" + world}
	cell.Stderr = &errors
	cell.ExtraFiles = []*os.File{peer}
	if err := cell.Start(); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	var rights []byte
	if files > 0 {
		list := make([]int, files)
		for i := range list {
			list[i] = int(null.Fd())
		}
		rights = unix.UnixRights(list...)
	}
	if err := unix.Sendmsg(fds[0], bytes, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
	unix.Shutdown(fds[0], unix.SHUT_WR)
	timer := time.AfterFunc(patience, func() { cell.Process.Kill() })
	defer timer.Stop()
	cell.Wait()
	unix.Close(fds[0])
	return cell.ProcessState.ExitCode(), errors.String()
}

func TestProtocolViolationsEndTheSession(t *testing.T) {
	good := `{"id":1,"argv":["L2Jpbi9zbGVlcA==","MTAwMA=="],"env":[],"dir":"Lw==","tty":false,"rows":0,"cols":0}`
	start := string(frame(wire.TypeExec, 3, good))
	tests := []struct {
		name  string
		bytes string
		files int
		code  int
	}{
		{"control: nothing wrong", start, 3, 0},
		{"control: stop", string(frame(wire.TypeStop, 0, "{}")), 0, 0},
		{"type 0", string(frame(0, 0, "{}")), 0, 3},
		{"unknown type", string(frame(999, 0, "{}")), 0, 3},
		{"type of the supervisor's side", string(frame(wire.TypeStarted, 0, "{}")), 0, 3},
		{"type of another phase", string(frame(wire.TypeBegin, 0, "{}")), 0, 3},
		{"two descriptors for Exec", string(frame(wire.TypeExec, 2, good)), 2, 3},
		{"none for Exec", string(frame(wire.TypeExec, 0, good)), 0, 3},
		{"descriptors with TTY", string(frame(wire.TypeExec, 3, strings.Replace(good, `"tty":false`, `"tty":true`, 1))), 3, 3},
		{"fewer than announced", string(frame(wire.TypeExec, 3, good)), 2, 3},
		{"more than the frame may hold", string(frame(wire.TypeExec, 5, good)), 5, 3},
		{"descriptors with Stop", string(frame(wire.TypeStop, 1, "{}")), 1, 3},
		{"body of Stop", string(frame(wire.TypeStop, 0, `{"x":1}`)), 0, 3},
		{"duplicate id", start + start, 3, 3},
		{"signal 0", string(frame(wire.TypeSignal, 0, `{"id":1,"signal":0}`)), 0, 3},
		{"signal 65", string(frame(wire.TypeSignal, 0, `{"id":1,"signal":65}`)), 0, 3},
		{"resize without a terminal", start + string(frame(wire.TypeResize, 0, `{"id":1,"rows":1,"cols":1}`)), 3, 3},
		{"oversize", "\xff\xff\xff\xff\x0d\x00\x00\x00", 0, 3},
		{"header cut short", "\x01\x00\x00", 0, 3},
		{"body cut short", string(frame(wire.TypeStop, 0, "{}"))[:9], 0, 3},
		{"trailing JSON", string(frame(wire.TypeStop, 0, "{}{}")), 0, 3},
		{"unknown field", string(frame(wire.TypeDial, 0, `{"id":1,"port":1,"host":"x"}`)), 0, 3},
		{"not JSON", string(frame(wire.TypeStop, 0, "\x00")), 0, 3},
		{"empty body", string(frame(wire.TypeStop, 0, "")), 0, 3},
		{"port out of range", string(frame(wire.TypeDial, 0, `{"id":1,"port":65536}`)), 0, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stderr := bytesToCell(t, "subreaper", []byte(tt.bytes), tt.files)
			if code != tt.code || tt.code == 3 && !strings.Contains(stderr, wire.ErrProtocol.Error()) {
				t.Errorf("cell ended with %d, want %d: %s", code, tt.code, stderr)
			}
		})
	}
}

func TestServeRefusesWhatItCannotKeep(t *testing.T) {
	if code, stderr := bytesToCell(t, "subreaper-claims", []byte{0}, 0); code != 3 || !strings.Contains(stderr, "not the first of a pid namespace") {
		t.Errorf("not PID 1: %d %s", code, stderr)
	}
	if code, stderr := bytesToCell(t, "subreaper-mask", []byte{0}, 0); code != 3 || !strings.Contains(stderr, "SIGUSR2 blocked") {
		t.Errorf("blocked signal: %d %s", code, stderr)
	}
}

func TestCommandsAreBounded(t *testing.T) {
	s := open(t, world{"pidns-withproc-few", 4243})
	var all []*running
	for range 4 {
		all = append(all, s.begin(command("/bin/cat")))
	}
	if got := s.fail(command("/bin/true")); got.Errno != int(unix.EAGAIN) {
		t.Errorf("the fifth of four: %+v", got)
	}
	all[0].stdin.Close()
	all[0].exited()
	if got := s.run(command("/bin/true"), nil); got.Code != 0 {
		t.Errorf("after one has ended: %+v", got.Exited)
	}
}

// TestReapingGoesOnWhenTheSupervisorDoesNotRead fills the socket with answers that nobody reads
// and then counts zombies from outside.
func TestReapingGoesOnWhenTheSupervisorDoesNotRead(t *testing.T) {
	const many = 100000
	s := open(t, subreaper)
	r := s.begin(shell("read x; i=0; while [ $i -lt 300 ]; do (: & : &); i=$((i+1)); done; echo end; read x"))
	var sent atomic.Int64
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range many {
			e := command("/no/such/file")
			e.ID = uint64(1000 + i)
			if s.conn.Send(wire.TypeExec, e, null, null, null) != nil {
				return
			}
			sent.Add(1)
		}
	})
	t.Cleanup(sender.Wait)
	for last := int64(-1); last != sent.Load(); unix.Poll(nil, 200) {
		last = sent.Load()
	}
	if n := sent.Load(); n == many {
		t.Fatalf("all %d requests were taken although nobody reads the answers", n)
	}
	if _, err := r.stdin.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if got := r.line(); got != "end" {
		t.Fatalf("got %q", got)
	}
	cell := s.cellPID(t)
	for deadline := time.Now().Add(patience); zombies(t, cell) > 0; unix.Poll(nil, 1) {
		if time.Now().After(deadline) {
			t.Fatalf("%d zombies stay", zombies(t, cell))
		}
	}
	if code := s.end(); code != 0 {
		t.Errorf("cell ended with %d: %s", code, s.stderr.String())
	}
}

// zombies counts the children of a process that wait to be reaped.
func zombies(t *testing.T, parent int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, fmt.Sprintf("Z %d ", parent)) {
			n++
		}
	}
	return n
}

func TestDial(t *testing.T) {
	each(t, []world{subreaper, userNS}, func(t *testing.T, s *session) {
		for _, network := range []string{"tcp4", "tcp6"} {
			address := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			s.id++
			s.send(wire.TypeDial, wire.Dial{ID: s.id, Port: uint16(port)})
			f := s.await(s.id, wire.TypeDialed, wire.TypeDialFailed)
			if f.Type != wire.TypeDialed || len(f.Files) != 1 {
				t.Fatalf("%s: %s %s with %d descriptors", network, f.Type, f.Body, len(f.Files))
			}
			there, err := net.FileConn(f.Files[0])
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			here, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(there, "hello")
			there.Close()
			var got [16]byte
			n, _ := here.Read(got[:])
			here.Close()
			if string(got[:n]) != "hello" {
				t.Errorf("%s: got %q", network, got[:n])
			}
		}
		s.id++
		s.send(wire.TypeDial, wire.Dial{ID: s.id, Port: 1})
		got := decode[wire.DialFailed](t, s.await(s.id, wire.TypeDialFailed, wire.TypeDialed))
		if got.Errno != int(unix.ECONNREFUSED) || got.Reason == "" {
			t.Errorf("closed port: %+v", got)
		}
	})
}

// fullListener returns the port of a listener on loopback whose queue is full: it drops each SYN. It is
// filled before anybody dials, because on a busy machine many SYNs are answered before the first
// connection has arrived in the queue.
func fullListener(t *testing.T) uint16 {
	t.Helper()
	var fds [2]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds[i] = fd
	}
	if err := unix.Bind(fds[0], &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fds[0], 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fds[1], name); err != nil {
		t.Fatal(err)
	}
	arrived := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}
	if n, err := unix.Poll(arrived, 10_000); n != 1 {
		t.Fatalf("the first connection did not arrive: %v", err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port)
}

// TestDialToAFullListenerEndsWithTheWire leaves a connection pending: the session must not wait.
func TestDialToAFullListenerEndsWithTheWire(t *testing.T) {
	port := fullListener(t)
	s := open(t, subreaper)
	for range 2 * 64 { // half of them hang, the rest are refused by the bound
		s.id++
		s.send(wire.TypeDial, wire.Dial{ID: s.id, Port: port})
	}
	if got := decode[wire.DialFailed](t, s.await(s.id, wire.TypeDialFailed)); got.Errno != int(unix.EAGAIN) {
		t.Errorf("beyond the bound: %+v", got)
	}
	if got := s.run(command("/bin/true"), nil); got.Code != 0 {
		t.Errorf("commands wait for dials: %+v", got.Exited)
	}
	begun := time.Now()
	if code := s.end(); code != 0 {
		t.Errorf("cell ended with %d: %s", code, s.stderr.String())
	}
	if took := time.Since(begun); took > 2500*time.Millisecond {
		t.Errorf("the cell waited %v for a connection that nobody wants any more", took)
	}
}
