package request

import (
	"fmt"
	"net/netip"

	"coworker/netproxy/hostmatch"
)

// SOCKSReply is the REP octet of RFC 1928 section 6.
type SOCKSReply byte

// The replies that this proxy gives.
const (
	SOCKSSucceeded      SOCKSReply = 0
	SOCKSFailure        SOCKSReply = 1
	SOCKSNotAllowed     SOCKSReply = 2
	SOCKSUnreachable    SOCKSReply = 4
	SOCKSNoCommand      SOCKSReply = 7
	SOCKSNoAddressType  SOCKSReply = 8
	SOCKSNoMethod       SOCKSReply = 0xff // METHOD of section 3: none is acceptable
	socksVersion                   = 5
	socksConnect                   = 1
	socksBind                      = 2
	socksUDP                       = 3
	socksIPv4                      = 1
	socksName                      = 3
	socksIPv6                      = 4
	socksNoAuthenticate            = 0
)

// SOCKSRefusal is a refusal with the octet to answer.
type SOCKSRefusal struct {
	Reply  SOCKSReply
	Reason string
}

func (r *SOCKSRefusal) Error() string { return r.Reason }

func socksBad(reply SOCKSReply, format string, args ...any) error {
	return &SOCKSRefusal{reply, fmt.Sprintf(format, args...)}
}

// IsSOCKS says that a connection begins like SOCKS5 and not like HTTP.
func IsSOCKS(first byte) bool { return first == socksVersion }

// ParseSOCKSGreeting reads VER NMETHODS METHODS. The method is always "no authentication": the listener exists only
// inside the cell, and a password that every process of the cell can read proves nothing.
func ParseSOCKSGreeting(b []byte) (n int, err error) {
	switch {
	case len(b) > 0 && b[0] != socksVersion:
		return 0, socksBad(SOCKSNoMethod, "SOCKS version %d, where only 5 is spoken", b[0])
	case len(b) < 2 || len(b) < 2+int(b[1]):
		return 0, ErrIncomplete
	}
	n = 2 + int(b[1])
	for _, m := range b[2:n] {
		if m == socksNoAuthenticate {
			return n, nil
		}
	}
	return 0, socksBad(SOCKSNoMethod, "the client offers no SOCKS method without authentication")
}

// ParseSOCKS reads VER CMD RSV ATYP DST.ADDR DST.PORT and gives the host to connect to. A name goes through the parser
// that reads names everywhere: NUL, CR and LF in it would end it for a resolver or an upstream proxy.
func ParseSOCKS(b []byte) (host hostmatch.Host, port uint16, n int, err error) {
	fail := func(reply SOCKSReply, format string, args ...any) (hostmatch.Host, uint16, int, error) {
		return hostmatch.Host{}, 0, 0, socksBad(reply, format, args...)
	}
	if len(b) > 0 && b[0] != socksVersion {
		return fail(SOCKSFailure, "SOCKS version %d, where only 5 is spoken", b[0])
	}
	if len(b) < 5 {
		return hostmatch.Host{}, 0, 0, ErrIncomplete
	}
	switch b[1] {
	case socksConnect:
	case socksBind:
		return fail(SOCKSNoCommand, "SOCKS BIND would listen for the client")
	case socksUDP:
		return fail(SOCKSNoCommand, "SOCKS UDP ASSOCIATE: UDP is not relayed")
	default:
		return fail(SOCKSNoCommand, "SOCKS command %d is not known", b[1])
	}
	if b[2] != 0 {
		return fail(SOCKSFailure, "the reserved SOCKS octet is %d", b[2])
	}
	size, ok := socksAddressSize(b[3], b[4])
	if !ok {
		return fail(SOCKSNoAddressType, "SOCKS address type %d is not known", b[3])
	}
	n = 4 + size + 2
	if len(b) < n {
		return hostmatch.Host{}, 0, 0, ErrIncomplete
	}
	if host, err = socksHost(b[3], b[4:4+size]); err != nil {
		return fail(SOCKSFailure, "SOCKS address %s", err)
	}
	if port = uint16(b[n-2])<<8 | uint16(b[n-1]); port == 0 {
		return fail(SOCKSFailure, "SOCKS port 0")
	}
	return host, port, n, nil
}

// socksAddressSize counts DST.ADDR; a name has its length in the first octet.
func socksAddressSize(kind, first byte) (int, bool) {
	switch kind {
	case socksIPv4:
		return 4, true
	case socksIPv6:
		return 16, true
	case socksName:
		return 1 + int(first), true
	}
	return 0, false
}

func socksHost(kind byte, b []byte) (hostmatch.Host, error) {
	if kind == socksName {
		return hostmatch.ParseHost(string(b[1:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return hostmatch.FromAddr(a)
}
