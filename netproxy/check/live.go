package check

import (
	"net/netip"
	"strings"

	"coworker/netproxy/hostmatch"
)

// Sent is what a client sends in one exchange of a row, for tests that run rows against a proxy with sockets.
type Sent struct {
	Kind     string // first word of the line: CONNECT, GET, SOCKS5, TCP, DNS, UDP
	Head     []byte // bytes for the proxy port; for SOCKS5 the request behind the greeting; nil if it has no such form
	Captured string // HOST:PORT of a redirected connection
	Question string // type and name of a lookup
	First    []byte // first bytes in the tunnel
	SNI      string // of the client that sends Inner
	ALPN     []string
	Inner    [][]byte // requests in the tunnel, in opened TLS but for port 80; nil for one of HTTP/2
	Secrets  bool     // the row is about credentials
}

// Sends lists the exchanges of a row.
func Sends(row Row) []Sent {
	s := parseScript(row.Request)
	var out []Sent
	for _, ex := range s.exchanges {
		out = append(out, s.sent(ex))
	}
	return out
}

func (s *script) sent(ex *exchange) Sent {
	kind, rest, _ := strings.Cut(ex.line, " ")
	o := Sent{Kind: kind, Secrets: len(s.inject) > 0}
	switch kind {
	case "SOCKS5":
		o.Head, _ = socksBytes(rest)
	case "SOCKS4", "SOCKS4A":
		o.Head = []byte{4, 1, 1, 187}
	case "TCP":
		o.Captured, _, _ = strings.Cut(rest, " ")
	case "DNS":
		o.Question = rest
	case "UDP", "QUIC", "ICMP", "RAW", "SCTP":
	default:
		o.Head = ex.bytes()
	}
	switch {
	case ex.first != nil:
		o.First = []byte(*ex.first)
	case ex.hello != nil && len(ex.inner) == 0:
		o.First = ex.hello.bytes()
	case ex.hello != nil && len(ex.hello.names) > 0:
		o.SNI, o.ALPN = ex.hello.names[0], ex.hello.alpn
	}
	for _, m := range ex.inner {
		for _, h := range m.headers {
			o.Secrets = o.Secrets || strings.Contains(h, "placeholder of ")
		}
		if strings.HasPrefix(m.line, ":") {
			o.Inner = append(o.Inner, nil)
			continue
		}
		o.Inner = append(o.Inner, m.bytes())
	}
	return o
}

// Lookups gives the answers of a row's resolver: for each name those of one lookup after the other, nil for one that fails.
func Lookups(row Row) map[string][][]netip.Addr {
	s := parseScript(row.Request)
	out := map[string][][]netip.Addr{}
	for _, d := range s.dns {
		name, _, _ := strings.Cut(d, "=")
		h, err := hostmatch.ParseName(strings.TrimSpace(name))
		if err != nil || out[h.Name()] != nil {
			continue
		}
		for _, lookup := range s.lookups(h) {
			addrs, err := s.answers(lookup, 0)
			if err != nil {
				addrs = nil
			}
			out[h.Name()] = append(out[h.Name()], addrs)
		}
	}
	return out
}
