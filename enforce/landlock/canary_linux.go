package landlock

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canary is an attempt that works before Restrict and must fail after it, whatever the rules grant: connecting to an
// abstract datagram socket that was made outside of the domain (ABI 6). A socket's domain is that of its maker at the
// time, so the process can be its own outside.
type canary struct {
	server, client int
	to             unix.RawSockaddrUnix
	length         uintptr
}

// newCanary returns nil, which proves nothing, where the kernel has no scopes, and where kernel programs on the control
// group (enforce/egress) refuse local sockets to a process without namespaces of its own: there is nothing to see then.
func newCanary(abi int) (c *canary, err error) {
	if abi < scopeABI {
		return nil, nil
	}
	c = &canary{server: -1, client: -1}
	defer func() {
		if err != nil {
			c.close()
			c, err = nil, fmt.Errorf("landlock canary: %w", err)
		}
		if errors.Is(err, errRefused) {
			err = nil
		}
	}()
	const kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC
	if c.server, err = unix.Socket(unix.AF_UNIX, kind, 0); err != nil {
		return c, err
	}
	if c.client, err = unix.Socket(unix.AF_UNIX, kind, 0); err != nil {
		return c, err
	}
	// An address without a name makes the kernel choose a free abstract one (autobind, unix(7)).
	if err = unix.Bind(c.server, &unix.SockaddrUnix{}); err != nil {
		return c, err
	}
	size := uint32(unsafe.Sizeof(c.to))
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(c.server),
		uintptr(unsafe.Pointer(&c.to)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return c, errno
	}
	c.length = uintptr(size)
	if _, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(c.client), uintptr(unsafe.Pointer(&c.to)), c.length); errno == unix.EPERM {
		return c, errRefused
	} else if errno != 0 {
		return c, fmt.Errorf("connect before the ruleset: %w", errno)
	}
	// Landlock lets a socket connect again to the peer it has, so take the peer away.
	if err = dissolve(c.client); err != nil {
		return c, err
	}
	return c, nil
}

// errRefused: something else than Landlock refuses what it is to refuse.
var errRefused = errors.New("refused before the ruleset")

// dissolve takes a datagram socket's peer away: connect(2) with AF_UNSPEC.
func dissolve(fd int) error {
	none := unix.RawSockaddrUnix{Family: unix.AF_UNSPEC}
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none.Family))
	if errno != 0 {
		return fmt.Errorf("disconnect: %w", errno)
	}
	return nil
}

// verify repeats the attempt on every thread. The Go runtime ends the process if the threads do not all get the same
// answer, so one thread that was forgotten cannot pass either. With cgo the call is not available (ENOTSUP) and only
// the calling thread is asked.
func (c *canary) verify() (bool, error) {
	if c == nil {
		return false, nil
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CONNECT, uintptr(c.client), uintptr(unsafe.Pointer(&c.to)), c.length)
	every := !errors.Is(errno, syscall.ENOTSUP)
	if !every {
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(c.client), uintptr(unsafe.Pointer(&c.to)), c.length)
	}
	if errno != unix.EPERM {
		return false, fmt.Errorf("%w: connect to a socket of outside: errno %d, want EPERM", ErrNotEnforced, errno)
	}
	return every, nil
}

func (c *canary) close() {
	if c == nil {
		return
	}
	for _, fd := range []int{c.server, c.client} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
