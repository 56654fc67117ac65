package netproxy

import (
	"errors"
	"io"
	"net"
	"time"

	"coworker/netproxy/dial"
	"coworker/netproxy/request"
	"coworker/netproxy/tlshello"
)

// greeting is what a client is told when its tunnel opens or not. A client that was redirected is told nothing: its
// connection just works, or is reset.
type greeting struct {
	open   func() []byte
	refuse func(*refusal) []byte
}

// tunnel decides, dials, greets, and looks into what passes as the rule says.
func (c *client) tunnel(a *attempt, g greeting) {
	defer a.tell()
	if r := a.decide(c.ctx); r != nil {
		c.turnAway(a, r, g)
		return
	}
	opens := c.e.hosts.Opens(a.place.host, a.place.port)
	res, r := a.dial(c.ctx, !opens && !a.rule.Raw && a.place.port == 80)
	if r != nil {
		c.turnAway(a, r, g)
		return
	}
	defer res.Conn.Close()
	defer c.e.track(res.Conn)()
	c.watch(res.Conn)
	if g.open != nil {
		if err := c.say(g.open()); err != nil {
			a.rec.Broken = "the client left before the tunnel was open"
			return
		}
	}
	c.dog.touch()
	switch {
	case a.rule.Raw && !opens:
		c.relay(a, res.Conn, nil)
	case a.place.port == 80:
		c.clear(a, res)
	default:
		a.rec.Inspected = true
		c.tls(a, res.Conn)
	}
	if why := c.dog.why(); why != "" {
		a.rec.Broken = why
	}
}

// watch has the watchdog close the origin's connection too.
func (c *client) watch(origin net.Conn) {
	c.dog.stop()
	conn := c.conn
	c.dog = newWatchdog(c.e.limits.Idle, c.e.limits.Total, func() { conn.Close(); origin.Close() })
}

func (c *client) turnAway(a *attempt, r *refusal, g greeting) {
	if g.refuse == nil {
		a.refuse(r)
		a.tell()
		c.reset()
		return
	}
	c.refuse(a, r, g.refuse(r))
}

// clear is HTTP on a connection that leads to one host: each request is read, compared and sent on.
func (c *client) clear(a *attempt, origin dial.Result) {
	h := &httpLoop{c: c, in: c.in, out: c.conn, at: request.TransparentPort, fixed: a}
	h.origin = newOrigin(origin, a)
	h.run()
}

// tls checks the ClientHello, then opens the TLS of the host or relays it.
func (c *client) tls(a *attempt, origin *net.TCPConn) {
	hello, used, err := c.hello()
	if err == nil {
		err = hello.Check(a.place.host)
	}
	if err != nil {
		c.badHello(a, err)
		return
	}
	if c.e.hosts.Opens(a.place.host, a.place.port) {
		c.opened(a, hello, origin)
		return
	}
	w := tlshello.NewWatch(hello, a.place.host)
	if err := w.Feed(c.in.ahead()[used:]); err != nil {
		c.badHello(a, err)
		return
	}
	c.relay(a, origin, w)
}

// hello reads a whole ClientHello and leaves it in the inbox.
func (c *client) hello() (*tlshello.Hello, int, error) {
	var h *tlshello.Hello
	var used int
	err := c.in.until(c.e.helloTime, c.e.helloTime, func(b []byte) (err error) {
		h, used, err = tlshello.Parse(b)
		return err
	}, tlshello.ErrIncomplete)
	return h, used, err
}

// alertUnrecognizedName is a fatal alert of RFC 8446 section 6.2 in a plain record.
var alertUnrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

// badHello ends a tunnel whose first octets are not what the rule allows.
func (c *client) badHello(a *attempt, err error) {
	var bad *tlshello.Refusal
	raw := a.place.host.Authority(a.place.port) + "+raw"
	isTLS := len(c.in.ahead()) > 0 && c.in.ahead()[0] == 22
	switch {
	case errors.Is(err, errHeadTime) && len(c.in.ahead()) == 0:
		a.refuse(denied("the client sent no ClientHello; a protocol in which the server speaks first needs a raw rule", raw))
	case errors.Is(err, errHeadTime):
		a.refuse(denied("the ClientHello did not come within the time allowed", ""))
	case errors.As(err, &bad) && isTLS:
		a.refuse(denied(bad.Reason, ""))
		c.say(alertUnrecognizedName)
		c.linger()
		return
	case errors.As(err, &bad):
		a.refuse(denied(bad.Reason, raw))
	case errors.Is(err, io.EOF):
		return // opened and closed; nothing passed
	default:
		a.rec.Broken = err.Error()
	}
	c.reset()
}

const defaultHelloTime = 10 * time.Second
