package netproxy

import (
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	maxPipes = 64        // at once; tunnels beyond are copied
	pipeSize = 256 << 10 // /proc/sys/fs/pipe-max-size lets everybody have 1 MiB
	moveMost = 1 << 20   // octets asked for at once
	// moveAgain is how much must have come at once for the next octets to be moved too. Small messages are copied: a pipe
	// saves nothing there.
	moveAgain = 32 << 10

	spliceFlags  = 1 | 2 // SPLICE_F_MOVE, SPLICE_F_NONBLOCK (splice(2))
	setPipeSize  = 1031  // F_SETPIPE_SZ (fcntl(2))
	allPipeFlags = syscall.O_CLOEXEC | syscall.O_NONBLOCK
)

// pipe carries octets between two sockets without copying them.
type pipe struct{ r, w int }

// pipes are kept when idle. Like buffers, they are held only while something passes.
type pipes struct {
	mu   sync.Mutex
	idle []pipe
	out  int
}

var moving pipes

// get gives an empty pipe; false: there are enough, or the system gives none.
func (p *pipes) get() (pipe, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		last := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.out++
		return last, true
	}
	if p.out >= maxPipes {
		return pipe{}, false
	}
	var fds [2]int
	if syscall.Pipe2(fds[:], allPipeFlags) != nil {
		return pipe{}, false
	}
	syscall.Syscall(syscall.SYS_FCNTL, uintptr(fds[1]), setPipeSize, pipeSize) // a smaller one does as well
	p.out++
	return pipe{fds[0], fds[1]}, true
}

// put takes back an empty pipe. One that still holds octets is closed: they belong to nobody else.
func (p *pipes) put(x pipe, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	if empty {
		p.idle = append(p.idle, x)
		return
	}
	syscall.Close(x.r)
	syscall.Close(x.w)
}

// mover moves octets from one connection to another inside the kernel.
type mover struct {
	from, to   syscall.RawConn
	take, give func(fd uintptr) bool // made once, so that moving allocates nothing
	pipe       pipe
	held       bool
	most       int64
	n, left    int64
	err        error
}

// newMover is nil if the connections cannot be reached.
func newMover(from, to *net.TCPConn) *mover {
	m := &mover{}
	var err error
	if m.from, err = from.SyscallConn(); err != nil {
		return nil
	}
	if m.to, err = to.SyscallConn(); err != nil {
		return nil
	}
	m.take, m.give = m.tryTake, m.tryGive
	return m
}

// move waits for octets and moves at most most of them. It gives how many arrived, and io.EOF at the end of data. Without
// a pipe it gives zero and no error, and the caller copies.
func (m *mover) move(most int64) (int64, error) {
	m.most, m.n, m.err = min(most, moveMost), 0, nil
	err := m.from.Read(m.take)
	if err == nil {
		err = m.err
	}
	if err != nil || !m.held {
		m.release(true)
		return 0, err
	}
	m.left = m.n
	for m.left > 0 && err == nil {
		if err = m.to.Write(m.give); err == nil {
			err = m.err
		}
	}
	m.release(m.left == 0)
	return m.n - m.left, err
}

func (m *mover) release(empty bool) {
	if m.held {
		m.held = false
		moving.put(m.pipe, empty)
	}
}

func (m *mover) tryTake(fd uintptr) bool {
	if m.pipe, m.held = moving.get(); !m.held {
		return true
	}
	m.n, m.err = spliceOnce(int(fd), m.pipe.w, m.most)
	if m.err == syscall.EAGAIN {
		m.err = nil
		m.release(true)
		return false
	}
	if m.err == nil && m.n == 0 {
		m.err = io.EOF
	}
	return true
}

func (m *mover) tryGive(fd uintptr) bool {
	var n int64
	n, m.err = spliceOnce(m.pipe.r, int(fd), m.left)
	if m.err == syscall.EAGAIN {
		m.err = nil
		return false
	}
	if m.err == nil && n == 0 {
		m.err = io.ErrUnexpectedEOF // a pipe does not lose octets
	}
	m.left -= max(n, 0)
	return true
}

func spliceOnce(from, to int, most int64) (int64, error) {
	for {
		n, err := syscall.Splice(from, nil, to, nil, int(most), spliceFlags)
		if err != syscall.EINTR {
			return int64(n), err
		}
	}
}
