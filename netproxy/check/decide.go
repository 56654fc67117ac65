package check

import (
	"fmt"
	"strings"

	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
	"coworker/netproxy/tlshello"
)

// outcome is the verdict on one exchange. Closed: the client has no connection left to say more on.
type outcome struct {
	host   hostmatch.Host
	port   uint16
	allow  bool
	closed bool
	reason string
}

func (o outcome) refuse(err error) outcome {
	o.allow, o.reason = false, err.Error()
	return o
}

// closedBy refuses what leaves no way to go on: a request that was not understood, a tunnel that broke its promise.
func (o outcome) closedBy(err error) outcome {
	o = o.refuse(err)
	o.closed = true
	return o
}

// decider holds what all exchanges of a row share.
type decider struct {
	*script
	rules hostmatch.Rules
}

// Decide answers one row.
func Decide(row Row) Result {
	rules, err := hostmatch.ParseRules(row.Allow, row.Deny)
	if err != nil {
		return Result{ID: row.ID, Decision: hostmatch.Deny.String(), Reason: err.Error()}
	}
	d := &decider{parseScript(row.Request), rules}
	var o outcome
	for _, ex := range d.exchanges {
		if o = d.exchange(ex); o.closed {
			break
		}
	}
	res := Result{ID: row.ID, Decision: hostmatch.Deny.String(), Reason: o.reason, Port: o.port}
	if o.allow {
		res.Decision = hostmatch.Allow.String()
	}
	if !o.host.IsZero() {
		res.Host = o.host.String()
	}
	return res
}

func (d *decider) exchange(ex *exchange) outcome {
	word, rest, _ := strings.Cut(ex.line, " ")
	switch word {
	case "SOCKS5":
		return d.socks(rest, ex)
	case "SOCKS4", "SOCKS4A":
		_, err := request.ParseSOCKSGreeting([]byte{4, 1, 1, 187})
		return outcome{}.closedBy(err)
	case "DNS":
		return d.lookup(rest)
	case "TCP":
		return d.captured(rest, ex)
	case "UDP", "QUIC", "ICMP", "RAW", "SCTP":
		return outcome{}.closedBy(fmt.Errorf("%s is not relayed; only TCP has a way out", word))
	}
	return d.http(ex)
}

// judge decides on the host and port, then on the addresses.
func (d *decider) judge(h hostmatch.Host, port uint16) (outcome, hostmatch.Decision) {
	dec := hostmatch.Match(d.rules, h, port)
	o := outcome{host: h, port: port, allow: dec.Verdict == hostmatch.Allow, reason: dec.Reason}
	if !o.allow {
		return o, dec
	}
	if err := d.addresses(h, dec.Grant); err != nil {
		return o.refuse(err), dec
	}
	return o, dec
}

// http follows the requests on one connection to the proxy port: the one of the row, and what its body hides.
func (d *decider) http(ex *exchange) outcome {
	b := ex.bytes()
	for {
		r, n, err := request.Parse(b, request.ProxyPort)
		if err != nil {
			return outcome{}.closedBy(err)
		}
		o, dec := d.judge(r.Host, r.Port)
		if !o.allow {
			return o
		}
		if r.Form == request.AuthorityForm {
			if early := string(b[n:]); early != "" && ex.first == nil {
				ex.first = &early
			}
			return d.inspect(o, dec, ex)
		}
		if err := d.credentials(o.host, ex.headers, false); err != nil {
			return o.refuse(err)
		}
		rest, err := afterBody(r, b[n:])
		if err != nil {
			return o.closedBy(err)
		}
		if len(rest) == 0 {
			return o
		}
		b = rest
	}
}

// afterBody gives what follows the body; a body that has not ended yet takes everything.
func afterBody(r *request.Request, b []byte) ([]byte, error) {
	if r.Body.Chunked {
		n, err := new(request.Chunks).Feed(b)
		return b[n:], err
	}
	return b[min(r.Body.Length, int64(len(b))):], nil
}

// captured is a connection that the redirect in the cell brought in. A name stands for its synthetic address; an address
// is one that the program dialled without asking for a name, and needs a rule of its own.
func (d *decider) captured(text string, ex *exchange) outcome {
	target, _, _ := strings.Cut(text, " ")
	h, port, err := hostmatch.ParseAuthority(target, 0)
	if err != nil {
		return outcome{}.closedBy(err)
	}
	o, dec := d.judge(h, port)
	if !o.allow {
		return o
	}
	return d.inspect(o, dec, ex)
}

// lookup is a DNS question. Only addresses of listed names are answered, with synthetic ones; nothing is forwarded.
func (d *decider) lookup(text string) outcome {
	kind, name, ok := strings.Cut(text, " ")
	if !ok {
		kind, name = "A", kind
	}
	h, err := hostmatch.ParseName(name)
	if err != nil {
		return outcome{}.refuse(err)
	}
	dec := hostmatch.MatchName(d.rules, h)
	o := outcome{host: h, allow: dec.Verdict == hostmatch.Allow, reason: dec.Reason}
	if o.allow && kind != "A" && kind != "AAAA" {
		return o.refuse(fmt.Errorf("DNS type %s is answered empty and never forwarded", hostmatch.Quote(kind)))
	}
	return o
}

// inspect looks at the bytes of an allowed connection.
func (d *decider) inspect(o outcome, dec hostmatch.Decision, ex *exchange) outcome {
	switch {
	case dec.Raw:
		return o
	case o.port == 80:
		return d.clear(o, ex)
	}
	return d.tls(o, ex)
}

// clear is HTTP on a connection that leads to one host.
func (d *decider) clear(o outcome, ex *exchange) outcome {
	first := ""
	switch {
	case ex.first != nil:
		first = *ex.first
	case ex.hello != nil:
		first = string(ex.hello.bytes())
	}
	if first != "" {
		if err := d.within(o, []byte(first), request.TransparentPort); err != nil {
			return o.closedBy(err)
		}
	}
	return d.inside(o, ex.inner, request.TransparentPort)
}

// tls checks the ClientHello, then the requests inside. A row with requests inside and no SNI means a client that sends
// the right name.
func (d *decider) tls(o outcome, ex *exchange) outcome {
	if ex.first == nil && ex.hello == nil && len(ex.inner) == 0 {
		return o
	}
	var first []byte
	if ex.first != nil {
		first = []byte(*ex.first)
	} else {
		first = ex.helloFor(o.host).bytes()
	}
	hello, _, err := tlshello.Parse(first)
	if err == nil {
		err = hello.Check(o.host)
	}
	if err != nil {
		return o.closedBy(err)
	}
	return d.inside(o, ex.inner, request.Tunnel)
}

func (ex *exchange) helloFor(h hostmatch.Host) *hello {
	out := ex.tls()
	if !out.named && h.Name() != "" {
		out.names = []string{h.Name()}
	}
	return out
}

// inside judges every request of a kept-alive connection: each must be for the host the connection was allowed for.
func (d *decider) inside(o outcome, messages []*message, place request.Place) outcome {
	for _, m := range messages {
		var err error
		if strings.HasPrefix(m.line, ":") {
			err = m.checkHTTP2(o)
		} else {
			err = d.within(o, m.bytes(), place)
		}
		if err == nil {
			err = d.credentials(o.host, m.headers, place == request.Tunnel)
		}
		if err != nil {
			return o.closedBy(err)
		}
	}
	return o
}

// within reads the requests in b and compares each with the connection.
func (d *decider) within(o outcome, b []byte, place request.Place) error {
	for len(b) > 0 {
		r, n, err := request.Parse(b, place)
		if err != nil {
			return err
		}
		if err := request.Agree(r.Host.Authority(r.Port), o.host, o.port); err != nil {
			return err
		}
		if b, err = afterBody(r, b[n:]); err != nil {
			return err
		}
	}
	return nil
}

// checkHTTP2 compares :authority and Host, either of which names the host in HTTP/2 (RFC 9113 section 8.3.1).
func (m *message) checkHTTP2(o outcome) error {
	found := false
	for _, l := range append([]string{m.line}, m.headers...) {
		value, ok := strings.CutPrefix(l, ":authority=")
		if !ok {
			name, v, _ := strings.Cut(l, ":")
			if !strings.EqualFold(name, "host") {
				continue
			}
			value = strings.TrimSpace(v)
		}
		found = true
		if err := request.Agree(value, o.host, o.port); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("an HTTP/2 request without :authority")
	}
	return nil
}
