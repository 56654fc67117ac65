package netproxy

import (
	"fmt"

	"coworker/netproxy/dns"
	"coworker/netproxy/hostmatch"
)

// redirected serves a connection of a program that knows of no proxy. Its address stands for a name, or is itself what the
// program wants; then it needs a rule of its own.
func (c *client) redirected() {
	to, err := c.e.original(c.conn)
	if err != nil {
		a := c.e.begin(c.source, "tcp", place{})
		a.refuse(denied(err.Error(), ""))
		a.tell()
		c.reset()
		return
	}
	host, known := c.e.names.Host(to.Addr())
	switch {
	case known:
	case dns.IsSynthetic(to.Addr()):
		err = fmt.Errorf("%s stands for no name of this session", to.Addr())
	default:
		host, err = hostmatch.FromAddr(to.Addr())
	}
	p := place{host, to.Port()}
	a := c.e.begin(c.source, "tcp", p)
	if err != nil {
		a.refuse(denied(err.Error(), ""))
		a.tell()
		c.reset()
		return
	}
	if c.e.isProbe(p) {
		c.say([]byte(c.e.cfg.Probe.Token))
		return
	}
	c.tunnel(a, greeting{}) // no answer: the connection is reset
}
