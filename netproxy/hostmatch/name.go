package hostmatch

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseBracketed reads an IP-literal of RFC 3986 section 3.2.2, without IPvFuture and without the zones of RFC 6874.
func parseBracketed(s string) (Host, error) {
	inner, ok := strings.CutSuffix(s[1:], "]")
	if !ok {
		return Host{}, &SyntaxError{s, len(s), "no closing bracket"}
	}
	if zone := strings.IndexByte(inner, '%'); zone >= 0 {
		return Host{}, &SyntaxError{s, zone + 1, "zone identifier"}
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || !a.Is6() {
		return Host{}, &SyntaxError{s, 1, "brackets hold an IPv6 address and nothing else"}
	}
	return Host{addr: a.Unmap()}, nil
}

func parseUnbracketed(s string) (Host, error) {
	for i := range len(s) {
		if reason := refusedOctet(s[i]); reason != "" {
			return Host{}, &SyntaxError{s, i, reason}
		}
	}
	name, dotted := strings.CutSuffix(s, ".") // the final dot of an absolute name, once
	if name == "" {
		return Host{}, &SyntaxError{s, 0, "empty host"}
	}
	if len(name) > maxName {
		return Host{}, &SyntaxError{s, maxName, "name longer than 253 octets"}
	}
	name = strings.ToLower(name)
	pos := 0
	for label := range strings.SplitSeq(name, ".") {
		if reason := refusedLabel(label); reason != "" {
			return Host{}, &SyntaxError{s, pos, reason}
		}
		pos += len(label) + 1
	}
	if isNumeric(name[strings.LastIndexByte(name, '.')+1:]) {
		return parseNumeric(s, name, dotted)
	}
	return Host{name: name}, nil
}

// refusedOctet allows letters, digits, hyphen and dot (RFC 1123 section 2.1), and the underscore that real service names
// use (RFC 8552). The frequent tricks get a reason of their own.
func refusedOctet(c byte) string {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		return ""
	case c >= 0x80:
		return "not ASCII; clients send the xn-- form (RFC 5891)"
	case c == '%':
		return "percent-encoding in a host"
	case c == '@':
		return "user information before a host"
	case c == '*':
		return "a star, which only rules have, as *.NAME"
	case c == ':':
		return "a colon (IPv6 addresses need brackets)"
	case c == '/' || c == '\\':
		return "a slash in a host"
	}
	return fmt.Sprintf("%q in a host", c)
}

func refusedLabel(label string) string {
	switch {
	case label == "":
		return "empty label"
	case len(label) > maxLabel:
		return "label longer than 63 octets"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "label begins or ends with a hyphen"
	case strings.HasPrefix(label, acePrefix):
		return refusedALabel(label)
	}
	return ""
}

// isNumeric says that a last label makes the whole name an address for some resolver (WHATWG URL, "ends in a number").
// No top-level domain is numeric.
func isNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// parseNumeric accepts the one spelling that everybody reads alike. The others are refused with the address that they
// mean for libc, which dials 127.0.0.1 for 127.1, 2130706433, 0x7f000001 and 0177.0.0.1.
func parseNumeric(text, name string, dotted bool) (Host, error) {
	if a, err := netip.ParseAddr(name); err == nil && a.Is4() && !dotted {
		return Host{addr: a}, nil
	}
	if a, ok := inetAton(name); ok {
		return Host{}, &SyntaxError{text, 0, fmt.Sprintf("an odd spelling of the address %s", a)}
	}
	return Host{}, &SyntaxError{text, 0, "ends in a number, but is no IPv4 address"}
}

// inetAton reads as inet_aton(3) does: one to four parts, each decimal, octal (0…) or hexadecimal (0x…), the last one
// filling the octets that are left.
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		limit := uint64(0xff)
		if i == len(parts)-1 {
			limit = 1<<(8*(5-len(parts))) - 1
		}
		n, ok := atonPart(p)
		if !ok || n > limit {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			v = v<<(8*(5-len(parts))) | n
		} else {
			v = v<<8 | n
		}
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

func atonPart(p string) (uint64, bool) {
	base, digits := uint64(10), p
	if hex, ok := strings.CutPrefix(p, "0x"); ok {
		base, digits = 16, hex
	} else if len(p) > 1 && p[0] == '0' {
		base, digits = 8, p[1:]
	}
	if digits == "" {
		return 0, base == 16 // glibc reads a bare "0x" as zero
	}
	var v uint64
	for i := range len(digits) {
		d := uint64(strings.IndexByte("0123456789abcdef", digits[i]))
		if d >= base { // IndexByte's -1 wraps to a huge number
			return 0, false
		}
		if v = v*base + d; v > 1<<32-1 {
			return 0, false
		}
	}
	return v, true
}
