package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// pair connects two ends in this process.
func pair(t testing.TB) (*Conn, *Conn) {
	t.Helper()
	a, file, err := Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	b := NewConn(file)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// rawPair gives one end as a descriptor, to break the rules with.
func rawPair(t testing.TB) (int, *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Inherited(uintptr(fds[1]), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return fds[0], c
}

// descriptors counts this process's open descriptors.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func openNull(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestWhatIsSentIsReceived(t *testing.T) {
	null := openNull(t)
	a, b := pair(t)
	rapid.Check(t, func(t *rapid.T) {
		sent := Exec{
			ID:   rapid.Uint64().Draw(t, "id"),
			Argv: rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "argv"),
			Env:  rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "env"),
			Dir:  rapid.SliceOf(rapid.Byte()).Draw(t, "dir"),
			TTY:  rapid.Bool().Draw(t, "tty"),
			Rows: rapid.Uint16().Draw(t, "rows"),
		}
		files := make([]*os.File, rapid.IntRange(0, MaxFiles).Draw(t, "files"))
		for i := range files {
			files[i] = null
		}
		var sender sync.WaitGroup
		sender.Go(func() {
			if err := a.Send(TypeExec, sent, files...); err != nil {
				t.Error(err)
			}
		})
		defer sender.Wait()
		f, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var got Exec
		if err := f.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if f.Type != TypeExec || len(f.Files) != len(files) || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", sent) {
			t.Fatalf("sent %+v with %d descriptors, received %s %+v with %d", sent, len(files), f.Type, got, len(f.Files))
		}
	})
}

func TestDescriptorsArriveAndAreMarked(t *testing.T) {
	a, b := pair(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if err := a.Send(TypeStarted, Started{ID: 1}, write); err != nil {
		t.Fatal(err)
	}
	if _, err := write.WriteString("mine "); err != nil { // the sender keeps its own
		t.Fatal(err)
	}
	write.Close()
	f, err := b.Receive()
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(f.Files[0].Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("received descriptor is not close-on-exec: %x, %v", flags, err)
	}
	if _, err := f.Files[0].WriteString("yours"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got, _ := io.ReadAll(read); string(got) != "mine yours" {
		t.Errorf("got %q", got)
	}
}

// TestConcurrentSendsDoNotInterleave uses bodies that no socket buffer takes at once.
func TestConcurrentSendsDoNotInterleave(t *testing.T) {
	null := openNull(t)
	a, b := pair(t)
	const senders, each, size = 8, 20, 300 << 10
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for range each {
				body := ExecFailed{ID: uint64(i), Reason: strings.Repeat(string(rune('a'+i)), size)}
				if err := a.Send(TypeExecFailed, body, []*os.File{null, null}[:i%3]...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	defer wg.Wait()
	for range senders * each {
		f, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		var got ExecFailed
		if err := f.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat(string(rune('a'+got.ID)), size); got.Reason != want || len(f.Files) != int(got.ID%3) {
			t.Fatalf("frame of %d is mixed with another", got.ID)
		}
		f.Close()
	}
}

func TestSendBlocksUntilTheOtherEndReads(t *testing.T) {
	a, b := pair(t)
	body := ExecFailed{Reason: strings.Repeat("x", 4<<20)}
	done := make(chan error, 1)
	go func() { done <- a.Send(TypeExecFailed, body) }()
	select {
	case err := <-done:
		t.Fatalf("4 MiB went into a socket that nobody reads: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f, err := b.Receive()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCloseUnblocks(t *testing.T) {
	a, b := pair(t)
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() { sent <- a.Send(TypeExecFailed, ExecFailed{Reason: strings.Repeat("x", 4<<20)}) }()
	go func() {
		_, err := a.Receive()
		received <- err
	}()
	select {
	case <-sent:
		t.Fatal("Send does not block")
	case <-received:
		t.Fatal("Receive does not block")
	case <-time.After(50 * time.Millisecond):
	}
	a.Close()
	for name, c := range map[string]chan error{"Send": sent, "Receive": received} {
		select {
		case err := <-c:
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v, want closed", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s still blocks after Close", name)
		}
	}
	if _, err := b.Receive(); err == nil {
		t.Error("half a frame was accepted")
	}
}

func TestSendToAClosedEndIsAnError(t *testing.T) {
	null := openNull(t)
	a, b := pair(t)
	b.Close()
	for _, files := range [][]*os.File{nil, {null}} {
		if err := a.Send(TypeReady, Empty{}, files...); !errors.Is(err, unix.EPIPE) {
			t.Errorf("%d descriptors: %v, want EPIPE", len(files), err)
		}
	}
}

func TestSendRefusesWhatReceiveWould(t *testing.T) {
	null := openNull(t)
	a, _ := pair(t)
	if err := a.Send(TypeFailed, Failed{Reason: strings.Repeat("x", MaxBody)}); err == nil {
		t.Error("a body beyond the bound was sent")
	}
	if err := a.Send(TypeReady, Empty{}, slices.Repeat([]*os.File{null}, MaxFiles+1)...); err == nil {
		t.Error("more descriptors were sent than fit")
	}
	if err := a.Send(TypeReady, func() {}); err == nil {
		t.Error("a function was sent")
	}
	closed, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := a.Send(TypeReady, Empty{}, closed); err == nil {
		t.Error("a closed descriptor was sent")
	}
}

func frame(size int, typ Type, files int, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(size))
	b = binary.LittleEndian.AppendUint16(b, uint16(typ))
	b = binary.LittleEndian.AppendUint16(b, uint16(files))
	return append(b, body...)
}

// TestReceiveRefusesAndClosesDescriptors holds for each error path that nothing leaks.
func TestReceiveRefusesAndClosesDescriptors(t *testing.T) {
	tests := []struct {
		name  string
		bytes []byte
		files int
		want  error
	}{
		{"control", frame(2, TypeReady, 0, "{}"), 0, nil},
		{"control with descriptors", frame(2, TypeReady, MaxFiles, "{}"), MaxFiles, nil},
		{"nothing", nil, 0, io.EOF},
		{"header cut short", frame(2, TypeReady, 2, "")[:5], 2, ErrProtocol},
		{"body missing", frame(2, TypeReady, 2, ""), 2, ErrProtocol},
		{"body cut short", frame(3, TypeReady, 2, "{}"), 2, ErrProtocol},
		{"too large", frame(MaxBody+1, TypeReady, 2, "{}"), 2, ErrProtocol},
		{"type 0", frame(2, 0, 1, "{}"), 1, ErrProtocol},
		{"unknown type", frame(2, typeEnd, 1, "{}"), 1, ErrProtocol},
		{"fewer descriptors than announced", frame(2, TypeReady, 3, "{}"), 2, ErrProtocol},
		{"more descriptors than announced", frame(2, TypeReady, 1, "{}"), 2, ErrProtocol},
		{"unannounced descriptor", frame(2, TypeReady, 0, "{}"), 1, ErrProtocol},
		{"announced and not sent", frame(2, TypeReady, 65535, "{}"), 0, ErrProtocol},
		{"more than fit", frame(2, TypeReady, MaxFiles+1, "{}"), MaxFiles + 1, ErrProtocol},
		{"many more than fit", frame(2, TypeReady, 200, "{}"), 200, ErrProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := descriptors(t)
			fd, c := rawPair(t)
			if tt.bytes != nil {
				sendRaw(t, fd, tt.bytes, tt.files)
			}
			unix.Close(fd)
			f, err := c.Receive()
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if err == nil {
				if len(f.Files) != tt.files {
					t.Errorf("%d descriptors, want %d", len(f.Files), tt.files)
				}
				f.Close()
			}
			c.Close()
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func sendRaw(t testing.TB, fd int, data []byte, files int) {
	t.Helper()
	null := openNull(t)
	defer null.Close()
	var rights []byte
	if files > 0 {
		list := make([]int, files)
		for i := range list {
			list[i] = int(null.Fd())
		}
		rights = unix.UnixRights(list...)
	}
	if err := unix.Sendmsg(fd, data, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
}

// TestLateDescriptorsAreDropped attaches them to the body, where nobody expects them.
func TestLateDescriptorsAreDropped(t *testing.T) {
	fd, c := rawPair(t)
	defer unix.Close(fd)
	before := descriptors(t)
	sendRaw(t, fd, frame(4, TypeReady, 0, "{ "), 0)
	sendRaw(t, fd, []byte(" }"), 3)
	sendRaw(t, fd, frame(2, TypeReady, 1, "{}"), 1)
	for _, want := range []int{0, 1} {
		f, err := c.Receive()
		if err != nil || len(f.Files) != want {
			t.Fatalf("%v, want %d descriptors", err, want)
		}
		f.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestSlowSenderIsWaitedFor(t *testing.T) {
	fd, c := rawPair(t)
	defer unix.Close(fd)
	var sender sync.WaitGroup
	sender.Go(func() {
		for _, b := range frame(2, TypeReady, 0, "{}") {
			unix.Write(fd, []byte{b})
		}
	})
	defer sender.Wait()
	f, err := c.Receive()
	if err != nil || f.Type != TypeReady || string(f.Body) != "{}" {
		t.Errorf("%v, %v", f, err)
	}
}

// FuzzReceive feeds bytes in two writes with any number of descriptors: no panic, no leak, and a
// frame that is accepted is within the bounds.
func FuzzReceive(f *testing.F) {
	f.Add(frame(2, TypeReady, 0, "{}"), uint8(0), uint8(0))
	f.Add(frame(2, TypeExec, 3, "{}"), uint8(3), uint8(4))
	f.Add(frame(MaxBody, TypeExec, 0, "{}"), uint8(0), uint8(8))
	f.Add(append(frame(2, TypeReady, 1, "{}"), frame(2, TypeReady, 0, "{}")...), uint8(1), uint8(9))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint8(30), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, files, cut uint8) {
		if len(data) == 0 || len(data) > 64<<10 {
			return // larger ones would block in the write
		}
		before := descriptors(t)
		fd, c := rawPair(t)
		first := data[:min(len(data), int(cut)+1)]
		sendRaw(t, fd, first, int(files)%250)
		if rest := data[len(first):]; len(rest) > 0 {
			sendRaw(t, fd, rest, 0)
		}
		unix.Close(fd)
		for {
			frame, err := c.Receive()
			if err != nil {
				break
			}
			if len(frame.Body) > MaxBody || len(frame.Files) > MaxFiles || !frame.Type.known() {
				t.Errorf("accepted %s with %d bytes and %d descriptors", frame.Type, len(frame.Body), len(frame.Files))
			}
			var v Exec
			if err := frame.Decode(&v); err != nil && !errors.Is(err, ErrProtocol) {
				t.Errorf("decode: %v", err)
			}
			frame.Close()
		}
		c.Close()
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	x, y := pair(b)
	null := openNull(b)
	e := Exec{Argv: [][]byte{[]byte("/bin/true")}, Env: [][]byte{[]byte("PATH=/usr/bin:/bin")}, Dir: []byte("/")}
	for b.Loop() {
		if err := x.Send(TypeExec, e, null, null, null); err != nil {
			b.Fatal(err)
		}
		f, err := y.Receive()
		if err != nil {
			b.Fatal(err)
		}
		var got Exec
		if err := f.Decode(&got); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
