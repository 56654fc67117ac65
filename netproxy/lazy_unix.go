//go:build unix

package netproxy

import (
	"io"
	"net"
	"syscall"
)

// lazyReader reads from a connection and takes a buffer only when there is something to read: ten thousand idle tunnels
// hold none.
type lazyReader struct {
	raw  syscall.RawConn
	pool *buffers
	try  func(fd uintptr) bool // made once, so that a read allocates nothing
	buf  *[]byte
	n    int
	err  error
}

func newLazyReader(c *net.TCPConn, pool *buffers) *lazyReader {
	l := &lazyReader{pool: pool}
	l.try = l.attempt
	l.raw, l.err = c.SyscallConn()
	return l
}

// read waits and gives a buffer of the pool, which the caller puts back, with n > 0 octets; or an error and no buffer.
func (l *lazyReader) read() (*[]byte, int, error) {
	if l.raw == nil {
		return nil, 0, l.err
	}
	l.buf, l.n, l.err = nil, 0, nil
	if err := l.raw.Read(l.try); err != nil {
		return nil, 0, err
	}
	switch {
	case l.err == nil && l.n > 0:
		return l.buf, l.n, nil
	case l.err == nil:
		l.err = io.EOF
	}
	l.pool.put(l.buf)
	return nil, 0, l.err
}

func (l *lazyReader) attempt(fd uintptr) bool {
	l.buf = l.pool.get()
	for {
		l.n, l.err = syscall.Read(int(fd), *l.buf)
		if l.err != syscall.EINTR {
			break
		}
	}
	if l.err == syscall.EAGAIN {
		l.pool.put(l.buf)
		l.buf = nil
		return false
	}
	return true
}

// quiet says that an idle connection is open and has nothing to read. An origin that closed, or that spoke unasked,
// is not asked again.
func quiet(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	still := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		still = err == syscall.EAGAIN
		return true
	})
	return err == nil && still
}

// departed says that a client has reset its connection, or ended its half of it with nothing left to read.
func departed(c *net.TCPConn) (gone, half bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true, true
	}
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		half = err == nil && n == 0
		gone = err != nil && err != syscall.EAGAIN && err != syscall.EINTR
		return true
	})
	return gone || err != nil, half
}
