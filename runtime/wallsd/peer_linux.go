package wallsd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer is who opened a connection, as the kernel says. A socket that is handed on stays its opener's.
type peer struct {
	uid, gid int
	groups   []uint32
	pid      int
	fd       int // pidfd of the process; -1 when closed
}

// errPeer marks somebody who gets no connection.
var errPeer = errors.New("not served")

// peerOf asks the kernel who connected.
func peerOf(conn *net.UnixConn) (*peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &peer{fd: -1}
	var askErr error
	err = raw.Control(func(fd uintptr) { askErr = p.ask(int(fd)) })
	if err = errors.Join(err, askErr); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *peer) ask(socket int) error {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("ask for the peer: %w", err)
	}
	p.uid, p.gid, p.pid = int(cred.Uid), int(cred.Gid), int(cred.Pid)
	if p.pid <= 0 {
		return fmt.Errorf("%w: its process is not visible here", errPeer)
	}
	if p.uid == overflowUID() && !ownsAllIDs() {
		return fmt.Errorf("%w: uid %d stands for many users here", errPeer, p.uid)
	}
	if p.groups, err = peerGroups(socket); err != nil {
		return fmt.Errorf("ask for the peer's groups: %w", err)
	}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) { // new in Linux 6.5
		return p.byNumber()
	}
	if err != nil {
		return fmt.Errorf("%w: its process is gone: %w", errPeer, err)
	}
	p.fd = fd
	unix.CloseOnExec(fd)
	return nil
}

// byNumber is for kernels that name the peer by number only. The number may have been used again since it connected, but not
// by another user: then it is refused, and another process of the same user could have connected itself.
func (p *peer) byNumber() error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return fmt.Errorf("%w: its process is gone: %w", errPeer, err)
	}
	p.fd = fd
	s, err := readStatus(p.pid)
	if err == nil && (!s.only(p.uid) || !alive(fd)) {
		err = fmt.Errorf("%w: process %d is not of uid %d alone", errPeer, p.pid, p.uid)
	}
	return err
}

func (p *peer) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// maxGroups is how many supplementary groups there can be (NGROUPS_MAX).
const maxGroups = 65536

// peerGroups are the supplementary groups of whoever connected (SO_PEERGROUPS, Linux 4.13), which x/sys does not wrap.
func peerGroups(socket int) ([]uint32, error) {
	for n := 64; n <= maxGroups; n *= 4 {
		groups := make([]uint32, n)
		size := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == 0 {
			return groups[:size/4], nil
		}
		if errno != unix.ERANGE {
			return nil, errno
		}
	}
	return nil, fmt.Errorf("more than %d", maxGroups)
}

func overflowUID() int {
	data, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	n, convErr := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || convErr != nil {
		return 65534
	}
	return n
}

// ownsAllIDs says that this process is in a user namespace in which every id stands for itself.
func ownsAllIDs() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(data))
	return err == nil && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

// target is a process that may join a session of its peer.
type target struct {
	pid   int
	start uint64 // when it started: tells it from a later one with the same number
}

// errTarget marks a process that the peer may not have moved.
var errTarget = errors.New("not a process that may join")

// examine decides whether the process behind a descriptor may join. The number in it is looked at in /proc, and what was seen
// there counts because the process lived before and after, so that the number was its own all the time.
func (p *peer) examine(fd int) (*target, error) {
	pid, err := pidOf(fd)
	if err != nil {
		return nil, err
	}
	if !alive(fd) || !alive(p.fd) {
		return nil, fmt.Errorf("%w: it has ended, or who asks has", errTarget)
	}
	status, err := readStatus(pid)
	if err != nil {
		return nil, err
	}
	switch {
	case status.tgid != pid:
		return nil, fmt.Errorf("%w: %d is a thread", errTarget, pid)
	case !status.only(p.uid):
		return nil, fmt.Errorf("%w: %d does not belong to uid %d alone", errTarget, pid, p.uid)
	case !status.noNewPrivs && !mapsOnly(pid, p.uid):
		// A process that could still become another user by executing a set-uid program would take that user's program into
		// a group that this one may freeze and kill.
		return nil, fmt.Errorf("%w: %d could gain privileges: it has neither no_new_privs nor a user namespace with its own id alone", errTarget, pid)
	}
	first, err := ancestry(pid, p.pid)
	if err != nil {
		return nil, err
	}
	// A parent that ends in the middle of the walk would leave a chain of links from different times.
	second, err := ancestry(pid, p.pid)
	if err != nil {
		return nil, err
	}
	if len(first) != len(second) {
		return nil, fmt.Errorf("%w: its parents changed meanwhile", errTarget)
	}
	for i := range first {
		if first[i] != second[i] {
			return nil, fmt.Errorf("%w: its parents changed meanwhile", errTarget)
		}
	}
	if !alive(fd) || !alive(p.fd) {
		return nil, fmt.Errorf("%w: it ended meanwhile, or who asks did", errTarget)
	}
	return &first[0], nil
}

// pidOf gives the number of the process behind a pidfd, as this process sees it.
func pidOf(fd int) (int, error) {
	self := filepath.Join("/proc/self/fd", strconv.Itoa(fd))
	name, err := os.Readlink(self)
	if err != nil || name != "anon_inode:[pidfd]" && !strings.HasPrefix(name, "pidfd:[") {
		return 0, fmt.Errorf("%w: the descriptor is no pidfd", errTarget)
	}
	info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", strconv.Itoa(fd)))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errTarget, err)
	}
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "Pid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(rest)); err == nil && pid > 1 {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: it has ended, or is not visible here", errTarget)
}

// alive says that the process has not ended: a pidfd becomes readable when it has (pidfd_open(2)), before its number is free.
func alive(fd int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n == 0
	}
}

type status struct {
	tgid       int
	uids       []string // real, effective, saved, of the file system
	noNewPrivs bool
}

func (s status) only(uid int) bool {
	if len(s.uids) != 4 {
		return false
	}
	for _, u := range s.uids {
		if u != strconv.Itoa(uid) {
			return false
		}
	}
	return true
}

// readStatus reads proc_pid_status(5). The kernel escapes the name of the program in it, so no line can be forged.
func readStatus(pid int) (status, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return status{}, fmt.Errorf("%w: %w", errTarget, err)
	}
	var s status
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch key {
		case "Tgid":
			s.tgid, _ = strconv.Atoi(strings.TrimSpace(value)) // 0 is no process
		case "Uid":
			s.uids = strings.Fields(value)
		case "NoNewPrivs":
			s.noNewPrivs = strings.TrimSpace(value) == "1"
		}
	}
	return s, nil
}

// mapsOnly says that the process's user namespace knows no id but this one: whatever it executes, it stays who it is.
func mapsOnly(pid, uid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "uid_map"))
	f := strings.Fields(string(data))
	return err == nil && len(f) == 3 && f[1] == strconv.Itoa(uid) && f[2] == "1"
}

// maxAncestry bounds the walk; a session is one or two below its supervisor.
const maxAncestry = 64

// ancestry lists the processes from pid up to, but without, its ancestor to.
func ancestry(pid, to int) ([]target, error) {
	var out []target
	for at := pid; at != to; {
		s, err := readStat(at)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errTarget, err)
		}
		out = append(out, s.target)
		if s.parent <= 1 && s.parent != to || len(out) == maxAncestry {
			return nil, fmt.Errorf("%w: %d is not below process %d, which asks", errTarget, pid, to)
		}
		at = s.parent
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: a process cannot have itself moved", errTarget)
	}
	return out, nil
}

type stat struct {
	target
	parent int
	dead   bool // ended, and not yet waited for
}

// readStat reads proc_pid_stat(5). The name in it may contain anything, so fields are counted from its end.
func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const stateField, parentField, startField = 0, 1, 19
	if len(f) <= startField {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	parent, err1 := strconv.Atoi(f[parentField])
	start, err2 := strconv.ParseUint(f[startField], 10, 64)
	dead := f[stateField] == "Z" || f[stateField] == "X"
	return stat{target: target{pid: pid, start: start}, parent: parent, dead: dead}, errors.Join(err1, err2)
}

// as runs f with the rights to files that the peer has and no others, on a thread that ends afterwards.
func (p *peer) as(f func() error) error {
	if p.uid == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		done <- p.become(f)
	}()
	return <-done
}

func (p *peer) become(f func() error) error {
	// The call of the kernel, which is for one thread; the one of package syscall is for all.
	var list unsafe.Pointer
	if len(p.groups) > 0 {
		list = unsafe.Pointer(&p.groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(p.groups)), uintptr(list), 0); errno != 0 {
		return fmt.Errorf("take the groups of uid %d: %w", p.uid, errno)
	}
	for _, id := range []struct {
		call uintptr
		id   int
	}{{unix.SYS_SETFSGID, p.gid}, {unix.SYS_SETFSUID, p.uid}} {
		unix.RawSyscall(id.call, uintptr(id.id), 0, 0)
		// It tells the old id and never fails; asking with an impossible one tells whether it worked (setfsuid(2)).
		if got, _, _ := unix.RawSyscall(id.call, ^uintptr(0), 0, 0); int(got) != id.id {
			return fmt.Errorf("take the file rights of uid %d: have %d instead of %d", p.uid, got, id.id)
		}
	}
	return f()
}
