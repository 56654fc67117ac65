package netproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"coworker/netproxy/flow"
	"coworker/netproxy/request"
)

// httpLoop serves the requests of one client connection, one after the other. It keeps one connection to an origin, which
// belongs to this client and to the host, port and rule it was opened for, and serves no other.
type httpLoop struct {
	c      *client
	in     *inbox
	out    net.Conn
	at     request.Place
	fixed  *attempt // the tunnel that the requests are in; nil on the proxy port
	opened bool     // in TLS that was opened
	origin *origin
}

// run returns when the connection cannot be used further.
func (h *httpLoop) run() {
	defer func() {
		if h.origin != nil {
			h.origin.close()
		}
	}()
	first := h.c.e.headTime
	for h.one(first) {
		first = h.c.e.limits.Idle
		h.c.dog.touch()
	}
	if why := h.c.dog.why(); why != "" && h.fixed != nil {
		h.fixed.rec.Broken = why
	}
}

// one serves one request and says whether another may follow.
func (h *httpLoop) one(first time.Duration) bool {
	req, err := h.in.head(h.at, first, h.c.e.headTime)
	if err != nil {
		h.badHead(err)
		return false
	}
	h.c.dog.touch()
	p := place{req.Host, req.Port}
	if req.Form == request.AuthorityForm {
		h.connect(p)
		return false
	}
	protocol := "http"
	if h.opened {
		protocol = "https"
	}
	a := h.c.e.begin(h.c.source, protocol, p)
	a.rec.Method, a.rec.Path = req.Method, pathOf(req.Target)
	if h.fixed != nil {
		h.fixed.told = true // its requests are told one by one
	}
	defer a.tell()
	x := &exchange{h: h, req: req, a: a}
	if r := x.allowed(); r != nil {
		return h.refuse(a, r, req)
	}
	return x.run()
}

// pathOf leaves the query out: it often holds secrets.
func pathOf(target string) string {
	for i := range len(target) {
		if target[i] == '?' {
			return target[:i]
		}
	}
	return target
}

// badHead answers what is no request. A client that left between requests is not told of.
func (h *httpLoop) badHead(err error) {
	var bad *request.Refusal
	quiet := len(h.in.ahead()) == 0
	if !errors.As(err, &bad) && (quiet || !errors.Is(err, errHeadTime) && !errors.Is(err, io.EOF)) {
		return
	}
	p, protocol := place{}, "http"
	if h.fixed != nil {
		p = h.fixed.place
		h.fixed.told = true
	}
	a := h.c.e.begin(h.c.source, protocol, p)
	if errors.Is(err, io.EOF) {
		err = &request.Refusal{Status: http.StatusBadRequest, Reason: "the request ends early"}
	}
	r := refusalOf(err)
	a.refuse(r)
	a.tell()
	h.say(r.answer(true))
}

func (h *httpLoop) say(answer []byte) {
	h.out.SetWriteDeadline(time.Now().Add(h.c.e.headTime))
	h.out.Write(answer)
	if !h.opened {
		h.c.linger()
	}
}

// refuse answers a request that is not sent on.
func (h *httpLoop) refuse(a *attempt, r *refusal, req *request.Request) bool {
	a.refuse(r)
	a.rec.Status = r.status
	a.tell()
	h.say(r.answer(req.Method != http.MethodHead))
	return false
}

// connect turns the connection into a tunnel.
func (h *httpLoop) connect(p place) {
	c := h.c
	p = c.e.named(p)
	a := c.e.begin(c.source, "connect", p)
	open := []byte("HTTP/1.1 200 Connection established\r\n\r\n")
	if c.e.isProbe(p) {
		c.say(append(open, c.e.cfg.Probe.Token...))
		return
	}
	c.e.fault(p.host)
	if h.origin != nil {
		h.origin.close()
		h.origin = nil
	}
	c.tunnel(a, greeting{
		open:   func() []byte { return open },
		refuse: func(r *refusal) []byte { return r.answer(true) },
	})
}

// allowed decides on a request: by the rules on the proxy port, by its tunnel inside one.
func (x *exchange) allowed() *refusal {
	h := x.h
	if h.fixed == nil {
		if x.h.c.e.hosts.Opens(x.a.place.host, x.a.place.port) {
			return denied(x.a.place.host.Authority(x.a.place.port)+" has rules for what is asked in TLS; a request in clear text would pass them by", "")
		}
		if r := x.a.decide(h.c.ctx); r != nil {
			return r
		}
		if x.a.rule.Raw {
			x.a.rec.Inspected = true
		}
		return nil
	}
	if err := request.Agree(x.req.Host.Authority(x.req.Port), h.fixed.place.host, h.fixed.place.port); err != nil {
		return refusalOf(err)
	}
	x.a.rule, x.a.rec.Rule, x.a.rec.Reason = h.fixed.rule, h.fixed.rec.Rule, h.fixed.rec.Reason
	x.a.rec.Verdict, x.a.rec.Inspected = flow.Allow, true
	if !h.opened {
		return nil
	}
	return x.injected()
}

// endUnread ends a connection whose client still sends: a reset by what comes would take the answer with it.
func (h *httpLoop) endUnread() {
	if half, ok := h.out.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() // of TLS; linger ends that of TCP
	}
	h.c.linger()
}
