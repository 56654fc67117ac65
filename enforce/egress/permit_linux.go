package egress

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
)

// ErrUnsupported says that this kernel cannot keep sessions apart by programs.
var ErrUnsupported = errors.New("this kernel does not tell the cookie of a network namespace (Linux 5.14 does)")

// Allowed says why this process may not attach programs, or nil.
func Allowed() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("ask for the capabilities of this process: %w", err)
	}
	for _, c := range []struct {
		name   string
		number uint
	}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}} {
		if data[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			return fmt.Errorf("programs on a control group need %s, which this process does not have", c.name)
		}
	}
	return nil
}

// Permit says that the namespaces of a process are the cell's. It is called once, when the process is in the group and
// in its namespaces. A process in the network namespace of the caller has none of its own: then nothing is permitted.
func (p *Programs) Permit(pid int) error {
	cookie, mounts, err := namespacesOf(pid)
	if err != nil {
		return fmt.Errorf("permit the loopback of process %d: %w", pid, err)
	}
	// The mount namespace first: the network namespace is what opens.
	if err := p.cell.mounts.Set(mounts); err != nil {
		return err
	}
	if err := p.cell.net.Set(cookie); err != nil {
		return err
	}
	return p.cell.settled.Set(uint32(1))
}

// namespacesOf gives the cookie of a process's network namespace, 0 if it is the caller's, and the inode of its mount
// namespace.
func namespacesOf(pid int) (cookie uint64, mounts uint32, err error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, 0, err
	}
	defer ns.Close()
	var theirs, own, mnt unix.Stat_t
	err = errors.Join(unix.Fstat(int(ns.Fd()), &theirs), unix.Stat("/proc/thread-self/ns/net", &own), unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid), &mnt))
	if err != nil {
		return 0, 0, err
	}
	if theirs.Ino == own.Ino && theirs.Dev == own.Dev {
		return 0, uint32(mnt.Ino), nil
	}
	cookie, err = cookieOf(ns)
	return cookie, uint32(mnt.Ino), err
}

// cookieOf asks a socket made in the namespace for its cookie (SO_NETNS_COOKIE, Linux 5.14). The thread comes back
// afterwards: were it to end, whatever it had forked with a parent-death signal would end with it.
func cookieOf(ns *os.File) (uint64, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return 0, err
	}
	defer own.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return 0, fmt.Errorf("enter the network namespace: %w", err)
	}
	cookie, err := socketCookie()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// Still locked: the thread ends with this goroutine, and nothing else runs in a foreign namespace.
		return 0, errors.Join(err, fmt.Errorf("come back from the network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return cookie, err
}

func socketCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err == nil && cookie == 0 {
		err = errors.New("the kernel gave a network namespace the cookie 0")
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, ErrUnsupported
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// raiseMemlock lifts the bound on locked memory while programs are loaded: kernels before 5.11 count maps against it. It
// returns what puts it back.
func raiseMemlock() func() {
	var old unix.Rlimit
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if !oldKernel() || unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &all, &old) != nil {
		return func() {}
	}
	return func() { unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &old, nil) }
}

// oldKernel says whether the kernel is older than 5.11.
func oldKernel() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 5 || major == 5 && minor < 11
}

// plain says in a few words why the kernel did not take a program: the verifier's log is long.
func plain(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return "this kernel does not have it"
	case errors.As(err, &errno):
		return "the kernel refused it: " + unix.ErrnoName(errno)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
