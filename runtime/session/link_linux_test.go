package session

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coworker/runtime/wire"
)

// linkPair is a link with a cell at the other end that does what the test says.
func linkPair(t *testing.T) (*cellLink, *wire.Conn) {
	t.Helper()
	conn, peer, err := wire.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	l := newCellLink(conn)
	cell := wire.NewConn(peer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.listen()
	}()
	t.Cleanup(func() {
		cell.Close()
		l.fail(os.ErrClosed)
		<-done
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return l, cell
}

func await(t *testing.T, l *cellLink) error {
	t.Helper()
	select {
	case <-l.ended:
		return l.reason()
	case <-time.After(10 * time.Second):
		t.Fatal("the link did not end")
		return nil
	}
}

// message is what a hostile cell sends.
type message struct {
	t     wire.Type
	body  any
	files int
}

func (m message) send(t *testing.T, c *wire.Conn) {
	t.Helper()
	var files []*os.File
	for range m.files {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	// The link may be gone by now, because of an earlier message.
	if err := c.Send(m.t, m.body, files...); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Logf("send %s: %v", m.t, err)
	}
}

// TestLinkViolations: one call (1) and one dial (2) are open. Each message breaks the rules.
func TestLinkViolations(t *testing.T) {
	started, exited := wire.Started{ID: 1, Pid: 7}, wire.Exited{ID: 1}
	for _, tt := range []struct {
		name     string
		messages []message
	}{
		{"nobody asked", []message{{wire.TypeStopped, wire.Stopped{}, 0}}},
		{"a message of the supervisor", []message{{wire.TypeExec, wire.Exec{ID: 1}, 0}}},
		{"a message of the keeper", []message{{wire.TypeCellEnded, wire.CellEnded{}, 0}}},
		{"proved again", []message{{wire.TypeProved, wire.Proved{}, 0}}},
		{"descriptors with a control message", []message{{wire.TypeStopped, wire.Stopped{}, 1}}},
		{"start of an unknown call", []message{{wire.TypeStarted, wire.Started{ID: 9}, 0}}},
		{"end of an unknown call", []message{{wire.TypeExited, wire.Exited{ID: 9}, 0}}},
		{"failure of an unknown call", []message{{wire.TypeExecFailed, wire.ExecFailed{ID: 9}, 0}}},
		{"end twice", []message{{wire.TypeExited, exited, 0}, {wire.TypeExited, exited, 0}}},
		{"start twice", []message{{wire.TypeStarted, started, 0}, {wire.TypeStarted, started, 0}}},
		{"two descriptors with a start", []message{{wire.TypeStarted, started, 2}}},
		{"a descriptor with an end", []message{{wire.TypeExited, exited, 1}}},
		{"a descriptor with a failure", []message{{wire.TypeExecFailed, wire.ExecFailed{ID: 1}, 1}}},
		{"start after failure", []message{{wire.TypeExecFailed, wire.ExecFailed{ID: 1}, 0}, {wire.TypeStarted, started, 0}}},
		{"a call answered as a dial", []message{{wire.TypeDialed, wire.Dialed{ID: 1}, 1}}},
		{"a dial answered as a call", []message{{wire.TypeExited, wire.Exited{ID: 2}, 0}}},
		{"dialled without a socket", []message{{wire.TypeDialed, wire.Dialed{ID: 2}, 0}}},
		{"dialled with two sockets", []message{{wire.TypeDialed, wire.Dialed{ID: 2}, 2}}},
		{"dialled twice", []message{{wire.TypeDialFailed, wire.DialFailed{ID: 2}, 0}, {wire.TypeDialFailed, wire.DialFailed{ID: 2}, 0}}},
		{"body of another message", []message{{wire.TypeExited, wire.Proved{}, 0}}},
		{"body that is no object", []message{{wire.TypeExited, "x", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := openFiles(t)
			l, cell := linkPair(t)
			id, _ := l.newCall()
			dial, answer := l.newDial()
			if id != 1 || dial != 2 {
				t.Fatalf("ids %d and %d", id, dial)
			}
			for _, m := range tt.messages {
				m.send(t, cell)
			}
			if err := await(t, l); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("ended with %v, want a violation", err)
			}
			select {
			case r := <-answer:
				if r.conn != nil {
					r.conn.Close()
				}
			default:
			}
			cell.Close()
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors are left", after-before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// descriptorTargets says what is open, for a person who looks for a leak.
func descriptorTargets() []string {
	var out []string
	entries, _ := os.ReadDir("/proc/self/fd") // for a message only
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		out = append(out, e.Name()+" "+target)
	}
	return out
}

func TestLinkGarbage(t *testing.T) {
	for _, tt := range []struct{ name, bytes string }{
		{"text", "HTTP/1.1 200 OK\r\n\r\n"},
		{"unknown type", "\x02\x00\x00\x00\xff\x00\x00\x00{}"},
		{"type zero", "\x02\x00\x00\x00\x00\x00\x00\x00{}"},
		{"huge body", "\xff\xff\xff\xff\x12\x00\x00\x00"},
		{"descriptors that do not come", "\x02\x00\x00\x00\x12\x00\x01\x00{}"},
		{"no JSON", "\x02\x00\x00\x00\x12\x00\x00\x00xx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, peer, err := wire.Pair("test")
			if err != nil {
				t.Fatal(err)
			}
			l := newCellLink(conn)
			l.newCall()
			if _, err := peer.WriteString(tt.bytes); err != nil {
				t.Fatal(err)
			}
			l.listen() // returns
			peer.Close()
			if err := l.reason(); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("ended with %v, want a violation", err)
			}
		})
	}
}

// FuzzLink feeds bytes to a link with an open call; it must come back without a panic.
func FuzzLink(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x12\x00\x00\x00{}"))
	f.Add([]byte("\x08\x00\x00\x00\x12\x00\x00\x00{\"id\":1}"))
	f.Add([]byte("\x08\x00\x00\x00\x0e\x00\x00\x00{\"id\":1}\x08\x00\x00\x00\x0e\x00\x00\x00{\"id\":1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, peer, err := wire.Pair("fuzz")
		if err != nil {
			t.Fatal(err)
		}
		l := newCellLink(conn)
		l.newCall()
		l.newDial()
		if _, err := peer.Write(data[:min(len(data), 1<<16)]); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		l.listen()
	})
}

func TestLinkEndIsNoViolation(t *testing.T) {
	l, cell := linkPair(t)
	cell.Close()
	if err := await(t, l); !errors.Is(err, errCellGone) {
		t.Errorf("got %v", err)
	}
	if err := l.send(wire.TypeCommit, wire.Empty{}); !errors.Is(err, errCellGone) {
		t.Errorf("send afterwards: %v", err)
	}
}

func TestLinkRequest(t *testing.T) {
	ctx := context.Background()
	t.Run("answered", func(t *testing.T) {
		l, cell := linkPair(t)
		go func() {
			cell.Receive()
			cell.Send(wire.TypeStopped, wire.Stopped{Processes: 3})
		}()
		var s wire.Stopped
		if err := l.request(ctx, wire.TypeStop, wire.Empty{}, wire.TypeStopped, &s); err != nil || s.Processes != 3 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("failed", func(t *testing.T) {
		l, cell := linkPair(t)
		go func() {
			cell.Receive()
			cell.Send(wire.TypeFailed, wire.Failed{Step: "mount", Reason: "no"})
		}()
		var failed *wire.Failed
		if err := l.request(ctx, wire.TypeCommit, wire.Empty{}, wire.TypeReady, &wire.Empty{}); !errors.As(err, &failed) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("another answer", func(t *testing.T) {
		l, cell := linkPair(t)
		go func() {
			cell.Receive()
			cell.Send(wire.TypeKilled, wire.Killed{})
		}()
		if err := l.request(ctx, wire.TypeStop, wire.Empty{}, wire.TypeStopped, &wire.Stopped{}); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		l, _ := linkPair(t)
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		err := l.request(ctx, wire.TypeStop, wire.Empty{}, wire.TypeStopped, &wire.Stopped{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer to Stop") {
			t.Errorf("got %v", err)
		}
		await(t, l)
	})
	t.Run("two answers", func(t *testing.T) {
		l, cell := linkPair(t)
		go func() {
			cell.Receive()
			cell.Send(wire.TypeStopped, wire.Stopped{})
			cell.Send(wire.TypeStopped, wire.Stopped{})
		}()
		l.request(ctx, wire.TypeStop, wire.Empty{}, wire.TypeStopped, &wire.Stopped{}) // the second may win the race
		if err := await(t, l); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("got %v", err)
		}
	})
}
