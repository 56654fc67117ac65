package hostmatch

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// HostService is the name under which services on the machine outside are reached. It never goes to a resolver.
const HostService = "host.coworker.internal"

// Limits of RFC 1035 section 2.3.4, for names written without the final dot.
const (
	maxName  = 253
	maxLabel = 63
)

// SyntaxError says where a text stops being a host, a port or a rule.
type SyntaxError struct {
	Text   string // what was read
	Pos    int    // offset in octets
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at octet %d: %s", Quote(e.Text), e.Pos, e.Reason)
}

// Quote makes hostile text safe for a log line or a terminal: escaped and bounded.
func Quote(s string) string {
	const limit = 80
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// Host is a canonical host: a lower-case ASCII name without a final dot, or an address. Hosts are compared with ==.
type Host struct {
	name string
	addr netip.Addr
}

// FromAddr makes a Host of an address that came as binary (SOCKS5, the original destination of a connection).
// A zone is refused: it names an interface of whoever wrote it, and only link-local addresses need one.
func FromAddr(a netip.Addr) (Host, error) {
	if !a.IsValid() || a.Zone() != "" {
		return Host{}, &SyntaxError{Text: a.String(), Reason: "not a plain address"}
	}
	return Host{addr: a.Unmap()}, nil
}

// IsZero says that h is no host at all.
func (h Host) IsZero() bool { return h == Host{} }

// Addr is the address of a literal.
func (h Host) Addr() (netip.Addr, bool) { return h.addr, h.addr.IsValid() }

// Name is the canonical name; empty for a literal.
func (h Host) Name() string { return h.name }

// String is the name or the bare address.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Bracketed is the form used before a port.
func (h Host) Bracketed() string {
	if h.addr.Is6() {
		return "[" + h.addr.String() + "]"
	}
	return h.String()
}

// Authority is host:port (RFC 3986 section 3.2), with the port always written.
func (h Host) Authority(port uint16) string {
	return h.Bracketed() + ":" + strconv.Itoa(int(port))
}

// ParseHost reads a name, an IPv4 address in four decimal parts or an IPv6 address in brackets.
func ParseHost(s string) (Host, error) {
	if err := checkControls(s); err != nil {
		return Host{}, err
	}
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s)
	}
	return parseUnbracketed(s)
}

// ParseName reads a name only. DNS questions and SNI never hold an address (RFC 6066 section 3).
func ParseName(s string) (Host, error) {
	h, err := ParseHost(s)
	if err == nil && h.addr.IsValid() {
		return Host{}, &SyntaxError{Text: s, Reason: "an address where a name is expected"}
	}
	return h, err
}

// ParseAuthority reads HOST[:PORT]. defaultPort stands for a missing port; zero means that it must be written.
func ParseAuthority(s string, defaultPort uint16) (Host, uint16, error) {
	if err := checkControls(s); err != nil {
		return Host{}, 0, err
	}
	if at := strings.IndexByte(s, '@'); at >= 0 {
		return Host{}, 0, &SyntaxError{s, at, "user information before a host"}
	}
	host, port, at, err := splitPort(s)
	if err != nil {
		return Host{}, 0, err
	}
	h, err := ParseHost(host)
	switch {
	case err != nil:
		return Host{}, 0, err
	case at >= 0:
		n, err := parsePort(s, port, at+1)
		return h, n, err
	case defaultPort == 0:
		return Host{}, 0, &SyntaxError{s, len(s), "no port"}
	}
	return h, defaultPort, nil
}

// splitPort finds the colon before the port; at is -1 if there is none.
func splitPort(s string) (host, port string, at int, err error) {
	from := 0
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", 0, &SyntaxError{s, len(s), "no closing bracket"}
		}
		if end+1 < len(s) && s[end+1] != ':' {
			return "", "", 0, &SyntaxError{s, end + 1, "something other than a port after the bracket"}
		}
		from = end + 1
	}
	at = strings.IndexByte(s[from:], ':')
	if at < 0 {
		return s, "", -1, nil
	}
	at += from
	if second := strings.IndexByte(s[at+1:], ':'); second >= 0 {
		return "", "", 0, &SyntaxError{s, at + 1 + second, "a second colon (IPv6 addresses need brackets)"}
	}
	return s[:at], s[at+1:], at, nil
}

// parsePort reads 1 to 65535 in plain decimal. Signs, leading zeros and larger numbers mean different ports to different
// parsers (65979 is 443 after a 16-bit wrap).
func parsePort(text, s string, pos int) (uint16, error) {
	bad := func(reason string) (uint16, error) { return 0, &SyntaxError{text, pos, reason} }
	switch {
	case s == "":
		return bad("empty port")
	case strings.Trim(s, "0123456789") != "":
		return bad("port is not a decimal number")
	case s[0] == '0':
		return bad("port is zero or begins with zero")
	case len(s) > 5:
		return bad("port is above 65535")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return bad("port is above 65535")
	}
	return uint16(n), nil
}

// checkControls comes first everywhere: a control character ends the text for one reader and not for another.
func checkControls(s string) error {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f {
			return &SyntaxError{s, i, fmt.Sprintf("control character or space (0x%02x)", c)}
		}
	}
	return nil
}
