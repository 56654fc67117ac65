package netproxy

import (
	"errors"
	"net"
	"sync"
	"time"

	"coworker/netproxy/request"
)

// bulk buffers carry tunnels; small ones hold a request head.
const (
	bulkSize  = 64 << 10
	smallSize = 4 << 10
)

var (
	bulk  = sync.Pool{New: func() any { b := make([]byte, bulkSize); return &b }}
	small = sync.Pool{New: func() any { b := make([]byte, smallSize); return &b }}
)

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
		in.lazy = newLazyReader(tcp, &small)
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
		small.Put(in.owner)
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
		grown := make([]byte, len(in.buf)*4)
		copy(grown, in.buf)
		if in.owner != nil {
			small.Put(in.owner)
		}
		in.buf, in.owner = grown, nil
	}
	n, err := in.conn.Read(in.buf[in.w:])
	in.w, in.total = in.w+n, in.total+int64(n)
	if n > 0 {
		return nil
	}
	return err
}

func (in *inbox) firstRead() error {
	var n int
	var err error
	if in.lazy != nil {
		in.owner, n, err = in.lazy.read()
	} else {
		in.owner = small.Get().(*[]byte)
		n, err = in.conn.Read(*in.owner)
	}
	if n <= 0 {
		if in.owner != nil {
			small.Put(in.owner)
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
