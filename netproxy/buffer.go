package netproxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"coworker/netproxy/request"
)

// Sizes of buffers. Small ones hold a request head; bulk ones carry tunnels as long as few are in use: a cell that opens
// tunnels and reads nothing has each hold its buffer.
const (
	bulkSize  = 64 << 10
	smallSize = 4 << 10
	maxBulk   = 1024 // at once: 64 MiB
	maxGrown  = 512  // heads larger than a small buffer, at once
)

// buffers is a pool of one size, with another for what goes beyond its limit.
type buffers struct {
	pool  sync.Pool
	size  int
	limit int64 // 0: none
	out   atomic.Int64
	next  *buffers
}

var (
	small = newBuffers(smallSize, 0, nil)
	bulk  = newBuffers(bulkSize, maxBulk, small)
	grown = make(chan struct{}, maxGrown)
)

func newBuffers(size int, limit int64, next *buffers) *buffers {
	p := &buffers{size: size, limit: limit, next: next}
	p.pool.New = func() any { b := make([]byte, size); return &b }
	return p
}

func (p *buffers) get() *[]byte {
	if p.limit > 0 && p.out.Add(1) > p.limit {
		p.out.Add(-1)
		return p.next.get()
	}
	return p.pool.Get().(*[]byte)
}

// put takes back what get gave.
func (p *buffers) put(b *[]byte) {
	switch {
	case len(*b) != p.size:
		p.next.put(b)
		return
	case p.limit > 0:
		p.out.Add(-1)
	}
	p.pool.Put(b)
}

// errHeadTime is the end of a client that sends its request octet by octet, or not at all.
var errHeadTime = errors.New("the request did not come within the time allowed")

// inbox reads from a client with what was read ahead. It holds no buffer while it waits for the first octet.
type inbox struct {
	conn  net.Conn
	lazy  *lazyReader // nil if the connection cannot be waited for without a buffer (TLS)
	buf   []byte
	owner *[]byte // buf's home in the pool small; nil once it has grown
	r, w  int
	total int64 // octets read
}

func newInbox(c net.Conn) *inbox {
	in := &inbox{conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		in.lazy = newLazyReader(tcp, small)
	}
	return in
}

// ahead is what has been read and not taken.
func (in *inbox) ahead() []byte { return in.buf[in.r:in.w] }

// take drops n octets from the front of ahead.
func (in *inbox) take(n int) {
	if in.r += n; in.r == in.w {
		in.release()
	}
}

func (in *inbox) release() {
	if in.owner != nil {
		small.put(in.owner)
	} else if in.buf != nil {
		<-grown
	}
	in.buf, in.owner, in.r, in.w = nil, nil, 0, 0
}

// more reads at least one octet behind ahead.
func (in *inbox) more() error {
	if in.buf == nil {
		return in.firstRead()
	}
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	if in.w == len(in.buf) {
		if err := in.grow(); err != nil {
			return err
		}
	}
	n, err := in.conn.Read(in.buf[in.w:])
	in.w, in.total = in.w+n, in.total+int64(n)
	if n > 0 {
		return nil
	}
	return err
}

// errBusy: too many clients send heads that are unusually long.
var errBusy = errors.New("too many long request heads at once")

// grow makes room for the longest head at once; few are longer than a small buffer, and a client of many is hostile.
func (in *inbox) grow() error {
	if in.owner == nil {
		return errBusy // the parsers refuse before
	}
	select {
	case grown <- struct{}{}:
	default:
		return errBusy
	}
	b := make([]byte, request.MaxHead+smallSize)
	copy(b, in.buf)
	small.put(in.owner)
	in.buf, in.owner = b, nil
	return nil
}

func (in *inbox) firstRead() error {
	var n int
	var err error
	if in.lazy != nil {
		in.owner, n, err = in.lazy.read()
	} else {
		in.owner = small.get()
		n, err = in.conn.Read(*in.owner)
	}
	if n <= 0 {
		if in.owner != nil {
			small.put(in.owner)
			in.owner = nil
		}
		return err
	}
	in.buf, in.r, in.w, in.total = *in.owner, 0, n, in.total+int64(n)
	return nil
}

// Read takes what was read ahead, then reads directly.
func (in *inbox) Read(p []byte) (int, error) {
	if len(in.ahead()) > 0 {
		n := copy(p, in.ahead())
		in.take(n)
		return n, nil
	}
	n, err := in.conn.Read(p)
	in.total += int64(n)
	return n, err
}

// until calls parse with ahead, reading more each time that it answers incomplete. The whole must come within limit of
// the first octet, and the first octet within first.
func (in *inbox) until(first, limit time.Duration, parse func([]byte) error, incomplete error) error {
	if len(in.ahead()) == 0 {
		in.conn.SetReadDeadline(time.Now().Add(first))
		if err := in.more(); err != nil {
			return timely(err)
		}
	}
	err := parse(in.ahead())
	if err != incomplete {
		in.conn.SetReadDeadline(time.Time{})
		return err
	}
	in.conn.SetReadDeadline(time.Now().Add(limit))
	for err == incomplete {
		if failed := in.more(); failed != nil {
			return timely(failed)
		}
		err = parse(in.ahead())
	}
	in.conn.SetReadDeadline(time.Time{})
	return err
}

func timely(err error) error {
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		return errHeadTime
	}
	return err
}

// head reads one request head.
func (in *inbox) head(at request.Place, first, limit time.Duration) (*request.Request, error) {
	var r *request.Request
	var used int
	err := in.until(first, limit, func(b []byte) (err error) {
		r, used, err = request.Parse(b, at)
		return err
	}, request.ErrIncomplete)
	if err != nil {
		return nil, err
	}
	in.take(used)
	return r, nil
}
