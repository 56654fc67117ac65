package check

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"coworker/netproxy/request"
)

// socks sends the greeting and the request of a SOCKS5 client, then looks into the connection as after CONNECT.
func (d *decider) socks(text string, ex *exchange) outcome {
	if _, err := request.ParseSOCKSGreeting([]byte{5, 1, 0}); err != nil {
		return outcome{}.closedBy(err)
	}
	b, err := socksBytes(text)
	if err != nil {
		return outcome{}.closedBy(err)
	}
	h, port, _, err := request.ParseSOCKS(b)
	if err != nil {
		return outcome{}.closedBy(err)
	}
	o, dec := d.judge(h, port)
	if !o.allow {
		o.closed = true
		return o
	}
	return d.inspect(o, dec, ex)
}

// socksBytes encodes "CONNECT host:port". A text whose end is no port is a name as a whole, which is how such a name gets
// into the length-prefixed field.
func socksBytes(text string) ([]byte, error) {
	word, target, _ := strings.Cut(text, " ")
	command, ok := map[string]byte{"CONNECT": 1, "BIND": 2, "UDP-ASSOCIATE": 3, "UDP": 3}[word]
	if !ok {
		command = 9
	}
	host, port := target, uint64(443)
	if at := strings.LastIndexByte(target, ':'); at >= 0 && strings.Trim(target[at+1:], "0123456789") == "" {
		var err error
		if port, err = strconv.ParseUint(target[at+1:], 10, 16); err != nil {
			return nil, fmt.Errorf("port %q has no place in a SOCKS5 request", target[at+1:])
		}
		host = target[:at]
	}
	b := []byte{5, command, 0}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case err == nil && a.Is4():
		b = append(append(b, 1), a.AsSlice()...)
	case err == nil && a.Zone() == "" && strings.HasPrefix(host, "["):
		b = append(append(b, 4), a.AsSlice()...)
	case len(host) > 255:
		return nil, fmt.Errorf("a name of %d octets has no place in a SOCKS5 request", len(host))
	default:
		b = append(append(b, 3), vector(1, []byte(host))...)
	}
	return binary.BigEndian.AppendUint16(b, uint16(port)), nil
}
