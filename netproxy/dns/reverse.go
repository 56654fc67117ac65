package dns

import (
	"net/netip"
	"strconv"
	"strings"
)

// reverse reads the name of a PTR question in lower case, without the final dot (RFC 1035 section 3.5, RFC 3596
// section 2.5). Only whole addresses are read.
func reverse(name string) (netip.Addr, bool) {
	if labels, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		return reverse4(strings.Split(labels, "."))
	}
	if labels, ok := strings.CutSuffix(name, ".ip6.arpa"); ok {
		return reverse6(strings.Split(labels, "."))
	}
	return netip.Addr{}, false
}

func reverse4(labels []string) (netip.Addr, bool) {
	var b [4]byte
	if len(labels) != len(b) {
		return netip.Addr{}, false
	}
	for i, label := range labels {
		v, err := strconv.ParseUint(label, 10, 8)
		if err != nil || strconv.FormatUint(v, 10) != label {
			return netip.Addr{}, false
		}
		b[len(b)-1-i] = byte(v)
	}
	return netip.AddrFrom4(b), true
}

func reverse6(labels []string) (netip.Addr, bool) {
	var b [16]byte
	if len(labels) != 2*len(b) {
		return netip.Addr{}, false
	}
	for i, label := range labels {
		digit := strings.Index("0123456789abcdef", label)
		if len(label) != 1 || digit < 0 {
			return netip.Addr{}, false
		}
		b[len(b)-1-i/2] |= byte(digit) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}
