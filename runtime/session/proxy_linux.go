package session

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// proxyProcess is the process of a session's proxy.
type proxyProcess struct {
	process *os.Process
	crash   *crashLog
	ended   chan struct{}
	state   string // valid after ended
}

// controlPair makes the line to the proxy: our end, and the file that the proxy inherits.
func controlPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair for the proxy: %w", err)
	}
	mine, peer := os.NewFile(uintptr(fds[0]), "proxy-control"), os.NewFile(uintptr(fds[1]), "proxy-control-peer")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("line to the proxy: %w", err), peer.Close())
	}
	return conn.(*net.UnixConn), peer, nil
}

// proxyIDs are the ids of a proxy where root starts it: of nobody else, and of no other session by any likelihood. The range
// is the one that systemd gives to services without a user of their own (systemd.exec(5), DynamicUser=).
func proxyIDs(session string) uint32 {
	const first, count = 61184, 65519 - 61184 + 1
	h := fnv.New32a()
	h.Write([]byte(session))
	return first + h.Sum32()%count
}

// startProxy forks the proxy with files as its descriptors from 3 on, on a thread that outlives it (parent-death signal).
func startProxy(o *Egress, files []*os.File, session string) (*proxyProcess, error) {
	crash, err := newCrashLog()
	if err != nil {
		return nil, err
	}
	p := &proxyProcess{crash: crash, ended: make(chan struct{})}
	// Far above the numbers that the child's own descriptors take before it executes.
	program, err := unix.FcntlInt(o.Program.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("duplicate the proxy's program: %w", err), crash.close())
	}
	defer unix.Close(program)
	if err := keepDescriptors(); err != nil {
		return nil, errors.Join(err, crash.close())
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, crash.close())
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir: "/", Env: append([]string{}, o.Environ...), Files: append([]*os.File{null, null, crash.writer}, files...),
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true},
	}
	if os.Geteuid() == 0 {
		id := proxyIDs(session)
		attr.Sys.Credential = &syscall.Credential{Uid: id, Gid: id, Groups: []uint32{}, NoSetGroups: groupsFixed()}
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		p.process, err = os.StartProcess("/proc/self/fd/"+strconv.Itoa(program), []string{"coworker-proxy"}, attr)
		started <- err
		if err != nil {
			return
		}
		defer close(p.ended)
		if state, err := p.process.Wait(); err == nil {
			p.state = state.String()
		}
	}()
	err = <-started
	crash.started()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start coworker-proxy: %w", err), crash.close())
	}
	return p, nil
}

// keepDescriptors keeps what this process was started with from its children: a shell may have left anything open, and
// the proxy reads hostile bytes. What Go opens is close-on-exec already. Linux before 5.11 has no flag for it in
// close_range(2).
func keepDescriptors() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list own descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// proxyDescriptors are two for each connection that a proxy takes at once (12,000), and some.
const proxyDescriptors = 32 << 10

// moreDescriptors gives the proxy what its connections take, where root may: the limit that coworker was started with is
// about one program, and the proxy serves many. Elsewhere fewer connections are served at once, and more wait.
func (p *proxyProcess) moreDescriptors() error {
	if os.Geteuid() != 0 {
		return nil
	}
	var have unix.Rlimit
	err := unix.Prlimit(p.process.Pid, unix.RLIMIT_NOFILE, nil, &have)
	if err == nil && have.Cur < proxyDescriptors {
		err = unix.Prlimit(p.process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: proxyDescriptors, Max: max(have.Max, proxyDescriptors)}, nil)
	}
	// EPERM is root without CAP_SYS_RESOURCE, as in containers, or a number above fs.nr_open.
	if err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("raise the proxy's limit of descriptors to %d: %w", proxyDescriptors, err)
	}
	return nil
}

// groupsFixed reports whether this user namespace forbids setgroups(2) (user_namespaces(7)).
func groupsFixed() bool {
	data, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(data)) == "deny"
}

// howEnded waits a moment for the end of the process, and tells about it with what it wrote last.
func (p *proxyProcess) howEnded() string {
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		return "it closed its line and is still running"
	}
	if text := p.crash.text(); text != "" {
		return p.state + ": " + plainText(text, maxProxyText)
	}
	return p.state
}

// maxProxyText bounds what a proxy's last words may add to a message.
const maxProxyText = 600

func (p *proxyProcess) kill() error {
	select {
	case <-p.ended:
	default:
		if err := p.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill the proxy: %w", err)
		}
		<-p.ended
	}
	return p.crash.close()
}
