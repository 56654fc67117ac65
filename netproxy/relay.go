package netproxy

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"coworker/netproxy/tlshello"
)

// relay copies between client and origin until both directions have ended. What the inbox read ahead goes first. w looks
// at what the client sends until it is done; nil: nothing is looked at.
func (c *client) relay(a *attempt, origin *net.TCPConn, w *tlshello.Watch) {
	first := c.in.ahead()
	if len(first) > 0 {
		n, err := origin.Write(first)
		a.rec.BytesOut += int64(n)
		c.in.take(len(first))
		if err != nil {
			a.rec.Broken = reasonOf(err)
			return
		}
	}
	var ended atomic.Int32
	out := &direction{from: c.conn, to: origin, dog: c.dog, watch: w, ended: &ended}
	in := &direction{from: origin, to: c.conn, dog: c.dog, ended: &ended}
	var wait sync.WaitGroup
	wait.Go(func() { out.run() })
	in.run()
	wait.Wait()
	a.rec.BytesOut += out.bytes
	a.rec.BytesIn += in.bytes
	var bad *tlshello.Refusal
	switch {
	case errors.As(out.err, &bad):
		a.rec.Broken = bad.Reason
	case out.err != nil:
		a.rec.Broken = reasonOf(out.err)
	case in.err != nil:
		a.rec.Broken = reasonOf(in.err)
	}
}

// direction is one half of a tunnel.
type direction struct {
	from, to *net.TCPConn
	dog      *watchdog
	watch    *tlshello.Watch
	ended    *atomic.Int32 // of the tunnel's directions
	mover    *mover
	bytes    int64
	err      error
}

// run ends with the sender's end of data, which is passed on, or with an error, which ends both halves. The second end of
// data is passed on by closing, which the caller is about to do: all has been read, so nothing is reset.
func (d *direction) run() {
	if d.err = d.copy(); d.err == nil {
		if d.ended.Add(1) == 1 {
			d.to.CloseWrite()
		}
		return
	}
	for _, c := range []*net.TCPConn{d.from, d.to} {
		c.SetLinger(0) // an end that was cut off must not look complete
		c.Close()
	}
}

func (d *direction) copy() error {
	lazy := newLazyReader(d.from, bulk)
	for {
		b, n, err := lazy.read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		d.dog.touch()
		err = d.pass((*b)[:n])
		bulk.put(b)
		if err == nil && n >= moveAgain && d.watch == nil {
			err = d.move()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		d.dog.touch()
	}
}

// move lets the kernel pass octets on as long as many come at once. Nobody looks at them any more.
func (d *direction) move() error {
	if d.mover == nil {
		if d.mover = newMover(d.from, d.to); d.mover == nil {
			return nil
		}
	}
	for {
		n, err := d.mover.move(math.MaxInt64)
		d.bytes += n
		d.dog.touch()
		if err != nil || n < moveAgain {
			return err
		}
	}
}

func (d *direction) pass(b []byte) error {
	if d.watch != nil {
		if err := d.watch.Feed(b); err != nil {
			return err
		}
		if d.watch.Done() {
			d.watch = nil
		}
	}
	n, err := d.to.Write(b)
	d.bytes += int64(n)
	return err
}

// reasonOf is an error of a connection without its addresses.
func reasonOf(err error) string {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, net.ErrClosed):
		return "closed"
	}
	return err.Error()
}
