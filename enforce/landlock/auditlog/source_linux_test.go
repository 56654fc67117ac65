package auditlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// fake stands for the kernel: a pair of datagram sockets. A datagram that begins with a mark comes from a program.
type fake struct{ in, out int }

func newFake(t *testing.T) *fake {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	return &fake{p[0], p[1]}
}

const forged = 0xff

func (f *fake) descriptor() int { return f.in }
func (f *fake) close() error    { return unix.Close(f.in) }
func (f *fake) receive(buf []byte) (int, bool, error) {
	whole := make([]byte, len(buf)+1)
	n, _, err := unix.Recvfrom(f.in, whole, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	if err != nil {
		return 0, false, err
	}
	copy(buf, whole[1:min(n, len(whole))])
	return n - 1, whole[0] != forged, nil
}

func (f *fake) sendRaw(t *testing.T, mark byte, message []byte) {
	t.Helper()
	if err := unix.Send(f.out, append([]byte{mark}, message...), 0); err != nil {
		t.Fatal(err)
	}
}

func message(kind uint16, text string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(text)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, make([]byte, unix.SizeofNlMsghdr-len(b))...)
	return append(b, text...)
}

func (f *fake) send(t *testing.T, kind uint16, serial int, text string) {
	t.Helper()
	f.sendRaw(t, 0, message(kind, fmt.Sprintf("audit(1796000000.%03d:%d): %s", serial%1000, serial, text)))
}

const cellPid = 4_000_001 // more than there can be processes

func open(t *testing.T) (*Source, *fake) {
	t.Helper()
	f := newFake(t)
	s, err := newSource(f, "/ws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Watch(cellPid)
	return s, f
}

func allocated(domain string, pid int) string {
	return fmt.Sprintf(`domain=%s status=allocated mode=enforcing pid=%d uid=0 exe="/x" comm="x"`, domain, pid)
}

func next(t *testing.T, s *Source) enforce.Refusal {
	t.Helper()
	r, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOnlyTheSessionsRefusals(t *testing.T) {
	t.Parallel()
	s, f := open(t)
	f.send(t, typeLandlockAccess, 1, `domain=aa blockers=fs.read_file path="/foreign" dev="d" ino=1`)
	f.send(t, typeLandlockDomain, 1, allocated("aa", 77))
	f.send(t, typeLandlockAccess, 2, `domain=bb blockers=fs.read_file path="/mine" dev="d" ino=1`)
	f.send(t, typeLandlockDomain, 2, allocated("bb", cellPid))
	f.send(t, typeSyscall, 2, `arch=c000003e syscall=257 success=no exit=-13 items=0 ppid=2 pid=300 auid=0 comm="cat" exe="/bin/cat" key=(null)`)
	f.send(t, 1327, 2, `proctitle="cat"`)
	f.send(t, typeLandlockAccess, 3, `domain=aa blockers=fs.read_file path="/foreign" dev="d" ino=1`)
	f.send(t, typeLandlockAccess, 4, `domain=bb blockers=fs.make_dir path="/ws" dev="d" ino=1`)
	first := next(t, s)
	if first.What != "/mine" || first.Pid != 300 || first.Comm != "cat" || first.Needed != "--read /mine" {
		t.Errorf("%+v", first)
	}
	second := next(t, s)
	if second.What != "/ws" || second.Needed != "-w" || second.Pid != 0 {
		t.Errorf("%+v, without a record of its system call", second)
	}
	// A domain that is gone is nobody's: its number means nothing more.
	f.send(t, typeLandlockDomain, 5, "domain=bb status=deallocated denials=2")
	f.send(t, typeLandlockAccess, 6, `domain=bb blockers=fs.read_file path="/late" dev="d" ino=1`)
	f.send(t, typeLandlockAccess, 7, `domain=cc blockers=fs.read_file path="/new" dev="d" ino=1`)
	f.send(t, typeLandlockDomain, 7, allocated("cc", cellPid))
	if r := next(t, s); r.What != "/new" {
		t.Errorf("%+v", r)
	}
	if n := s.Unheard(); n != 0 {
		t.Errorf("%d unheard", n)
	}
}

// A program may send to a netlink socket what looks like a record.
func TestForgedRecordsAreNotHeard(t *testing.T) {
	t.Parallel()
	s, f := open(t)
	f.sendRaw(t, forged, message(typeLandlockAccess, `audit(1796000000.001:1): domain=bb blockers=fs.read_file path="/forged" dev="d" ino=1`))
	f.sendRaw(t, forged, message(typeLandlockDomain, "audit(1796000000.001:1): "+allocated("bb", cellPid)))
	f.send(t, typeLandlockAccess, 2, `domain=bb blockers=fs.read_file path="/true" dev="d" ino=1`)
	f.send(t, typeLandlockDomain, 2, allocated("bb", cellPid))
	if r := next(t, s); r.What != "/true" {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotBeReadIsCounted(t *testing.T) {
	t.Parallel()
	s, f := open(t)
	f.sendRaw(t, 0, []byte("short"))
	lies := message(typeLandlockAccess, "audit(")
	binary.NativeEndian.PutUint32(lies, 1<<20)
	f.sendRaw(t, 0, lies)
	f.sendRaw(t, 0, message(typeLandlockAccess, "nonsense"))
	f.sendRaw(t, 0, message(typeLandlockAccess, strings.Repeat("x", maxDatagram)))
	f.sendRaw(t, 0, message(typeSyscall, "nonsense")) // of no interest
	f.send(t, typeLandlockAccess, 2, `domain=bb blockers=fs.read_file path="/true" dev="d" ino=1`)
	f.send(t, typeLandlockDomain, 2, allocated("bb", cellPid))
	if r := next(t, s); r.What != "/true" {
		t.Errorf("%+v", r)
	}
	if n := s.Unheard(); n != 4 {
		t.Errorf("%d unheard, want 4", n)
	}
}

// The number of records that wait is bounded, whoever fills the log.
func TestFloodOfForeignRecords(t *testing.T) {
	t.Parallel()
	c := newCollector("", func(pid int) bool { return pid == cellPid })
	begun := time.Now()
	for i := range 100_000 {
		text := fmt.Sprintf(`audit(1796000000.001:%d): domain=%x blockers=fs.read_file path="/x" dev="d" ino=1`, i, i+1)
		c.add(typeLandlockAccess, text, begun)
		c.add(typeLandlockDomain, fmt.Sprintf("audit(1796000000.001:%d): %s", i, allocated(fmt.Sprintf("%x", i+1), cellPid)), begun)
	}
	if len(c.waiting) > maxWaiting || len(c.ours) > maxDomains {
		t.Errorf("%d waiting, %d domains", len(c.waiting), len(c.ours))
	}
	if got := c.due(begun.Add(patience)); len(got) != maxWaiting || c.unheard != 100_000-maxWaiting {
		t.Errorf("%d refusals, %d unheard", len(got), c.unheard)
	}
}

func TestCloseEndsNext(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ended := make(chan error)
	go func() {
		_, err := s.Next()
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond) // likely in its wait by then; either order must do
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// What came before the end is told, and what waits for records that cannot come any more.
func TestCloseGivesWhatWasThere(t *testing.T) {
	t.Parallel()
	s, f := open(t)
	for i, name := range []string{"/first", "/second"} {
		f.send(t, typeLandlockAccess, i, `domain=bb blockers=fs.read_file path="`+name+`" dev="d" ino=1`)
		f.send(t, typeLandlockDomain, i, allocated("bb", cellPid))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := next(t, s), next(t, s); a.What != "/first" || b.What != "/second" {
		t.Errorf("%+v, %+v", a, b)
	}
	if _, err := s.Next(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// The cell's threads count as the cell, and nobody else does.
func TestMember(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	s.Watch(0)
	if s.member(0) || s.member(os.Getpid()) {
		t.Error("a session without a cell has members")
	}
	s.Watch(os.Getpid())
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	if !s.member(os.Getpid()) || !s.member(unix.Gettid()) || s.member(child.Process.Pid) || s.member(1) {
		t.Error("members are the process and its threads")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	reply := func(kind uint16, sequence uint32, words ...uint32) []byte {
		body := []byte{}
		for _, w := range words {
			body = binary.NativeEndian.AppendUint32(body, w)
		}
		b := message(kind, string(body))
		binary.NativeEndian.PutUint32(b[8:], sequence)
		return b
	}
	minus := func(e unix.Errno) uint32 { return uint32(-int32(e)) }
	for name, c := range map[string]struct {
		message           []byte
		enabled, answered bool
		err               error
	}{
		"on":            {reply(unix.AUDIT_GET, 1, 1, 1, 0, 0), true, true, nil},
		"locked":        {reply(unix.AUDIT_GET, 1, 1, 2), true, true, nil},
		"off":           {reply(unix.AUDIT_GET, 1, 1, 0, 1), false, true, nil},
		"acknowledged":  {reply(unix.NLMSG_ERROR, 1, 0), false, false, nil},
		"no right":      {reply(unix.NLMSG_ERROR, 1, minus(unix.EPERM)), false, true, unix.EPERM},
		"in a user ns":  {reply(unix.NLMSG_ERROR, 1, minus(unix.ECONNREFUSED)), false, true, unix.ECONNREFUSED},
		"another's":     {reply(unix.AUDIT_GET, 2, 1, 1), false, false, nil},
		"short":         {[]byte{1, 2, 3}, false, false, nil},
		"without words": {reply(unix.AUDIT_GET, 1), false, true, errAny},
	} {
		enabled, answered, err := status(c.message, 1)
		if enabled != c.enabled || answered != c.answered || (err != nil) != (c.err != nil) || c.err != nil && c.err != errAny && !errors.Is(err, c.err) {
			t.Errorf("%s: %v %v %v", name, enabled, answered, err)
		}
	}
}

var errAny = errors.New("any")

// What this machine really answers: either a source, or a reason. Nothing about auditing may change by asking.
func TestOpenAsksAndChangesNothing(t *testing.T) {
	before, errBefore := auditing()
	s, err := Open("/ws")
	switch {
	case err != nil && (s != nil || !errors.Is(err, ErrNotLive)):
		t.Errorf("%v, %v", s, err)
	case err != nil:
		t.Log(err)
	default:
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	after, errAfter := auditing()
	if before != after || (errBefore == nil) != (errAfter == nil) {
		t.Errorf("auditing was %v (%v) and is %v (%v)", before, errBefore, after, errAfter)
	}
	if errBefore == nil && !before && (err == nil || !strings.Contains(err.Error(), "auditing is off") && !strings.Contains(err.Error(), "ABI")) {
		t.Errorf("auditing is off, and Open says %v", err)
	}
}
