package netproxy

import (
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
)

// socks serves one SOCKS5 request (RFC 1928).
func (c *client) socks() {
	p, err := c.socksRequest()
	p = c.e.named(p)
	a := c.e.begin(c.source, "socks5", p)
	if err != nil {
		r := refusalOf(err)
		c.refuse(a, r, socksReply(r.reply))
		return
	}
	if c.e.isProbe(p) {
		c.say(append(socksReply(request.SOCKSSucceeded), c.e.cfg.Probe.Token...))
		return
	}
	c.tunnel(a, greeting{
		open:   func() []byte { return socksReply(request.SOCKSSucceeded) },
		refuse: func(r *refusal) []byte { return socksReply(r.reply) },
	})
}

func (c *client) socksRequest() (place, error) {
	used := 0
	err := c.in.until(c.e.headTime, c.e.headTime, func(b []byte) (err error) {
		used, err = request.ParseSOCKSGreeting(b)
		return err
	}, request.ErrIncomplete)
	if err != nil {
		if refusal, ok := err.(*request.SOCKSRefusal); ok && refusal.Reply == request.SOCKSNoMethod {
			c.say([]byte{5, byte(request.SOCKSNoMethod)})
		}
		return place{}, err
	}
	c.in.take(used)
	if err := c.say([]byte{5, 0}); err != nil {
		return place{}, err
	}
	var host hostmatch.Host
	var port uint16
	err = c.in.until(c.e.headTime, c.e.headTime, func(b []byte) (err error) {
		host, port, used, err = request.ParseSOCKS(b)
		return err
	}, request.ErrIncomplete)
	if err != nil {
		return place{}, err
	}
	c.in.take(used)
	return place{host, port}, nil
}

// socksReply is VER REP RSV ATYP BND.ADDR BND.PORT; the bound address says nothing about the network outside.
func socksReply(reply request.SOCKSReply) []byte {
	if reply == request.SOCKSNoMethod {
		return nil // said already
	}
	return []byte{5, byte(reply), 0, 1, 0, 0, 0, 0, 0, 0}
}
