package netproxy

import (
	"context"
	"net"
	"time"

	"coworker/netproxy/flow"
	"coworker/netproxy/request"
)

// client is one connection from the cell, and what it has opened.
type client struct {
	e      *engine
	ctx    context.Context // ends with the proxy
	conn   *net.TCPConn
	in     *inbox
	source flow.Source
	dog    *watchdog
}

// serve owns the connection until it is closed.
func (e *engine) serve(ctx context.Context, conn *net.TCPConn, src flow.Source) {
	c := &client{e: e, ctx: ctx, conn: conn, in: newInbox(conn), source: src}
	c.dog = newWatchdog(e.limits.Idle, e.limits.Total, func() { conn.Close() })
	defer c.dog.stop()
	defer conn.Close()
	defer c.in.release()
	if src == flow.Transparent {
		c.redirected()
		return
	}
	if c.in.ready(e.headTime) != nil {
		return // nothing was asked
	}
	if request.IsSOCKS(c.in.ahead()[0]) {
		c.socks()
		return
	}
	h := &httpLoop{c: c, in: c.in, out: conn, at: request.ProxyPort}
	h.run()
}

// refuse answers a connection that stands for one attempt, and tells it.
func (c *client) refuse(a *attempt, r *refusal, answer []byte) {
	a.refuse(r)
	a.tell()
	c.say(answer)
	c.linger()
}

// say writes to the client; one that reads nothing loses its connection.
func (c *client) say(b []byte) error {
	c.conn.SetWriteDeadline(time.Now().Add(c.e.headTime))
	defer c.conn.SetWriteDeadline(time.Time{})
	_, err := c.conn.Write(b)
	return err
}

// linger lets the client read the last answer: closing with unread octets would reset the connection and drop it.
func (c *client) linger() {
	c.conn.CloseWrite()
	c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	b := small.get()
	defer small.put(b)
	for { // until the deadline: a client in the middle of an upload has to come to read
		if n, err := c.conn.Read(*b); err != nil || n == 0 {
			return
		}
	}
}

// reset ends the connection so that the client sees a refusal and not an empty answer.
func (c *client) reset() {
	c.conn.SetLinger(0)
	c.conn.Close()
}

const lingerTime = 500 * time.Millisecond

// ready waits for the first octet.
func (in *inbox) ready(limit time.Duration) error {
	if len(in.ahead()) > 0 {
		return nil
	}
	in.conn.SetReadDeadline(time.Now().Add(limit))
	defer in.conn.SetReadDeadline(time.Time{})
	return in.more()
}
