package redirect

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRoutes(t *testing.T) {
	a := netip.MustParseAddr
	got, err := routes([]netip.Addr{a("203.0.113.7"), a("2001:db8::7"), a("::ffff:203.0.113.7"), a("203.0.113.7"), a("10.0.0.1")}, true)
	want := "198.18.0.0/15 fdc0:c0c0:c0c0::/64 203.0.113.7/32 2001:db8::7/128 10.0.0.1/32"
	if text := join(got); err != nil || text != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
	got, err = routes([]netip.Addr{a("2001:db8::7")}, false)
	if text := join(got); err != nil || text != "198.18.0.0/15" {
		t.Errorf("without IPv6: %s %v", text, err)
	}
	if _, err := routes(make([]netip.Addr, maxLiterals+1), true); err == nil {
		t.Error("any number of addresses is accepted")
	}
}

func join(p []netip.Prefix) string {
	var out []string
	for _, x := range p {
		out = append(out, x.String())
	}
	return strings.Join(out, " ")
}

func TestRoutesRefuse(t *testing.T) {
	for text, reason := range map[string]string{
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "0.0.0.0": "this host", "0.1.2.3": "this host", "::": "this host",
		"169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%lo": "plain", "224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast",
		"198.18.0.5": "synthetic", "198.19.255.255": "synthetic", "fdc0:c0c0:c0c0::5": "synthetic", "::ffff:198.18.0.5": "synthetic",
	} {
		for _, ipv6 := range []bool{true, false} {
			if _, err := routes([]netip.Addr{netip.MustParseAddr(text)}, ipv6); err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %v, want a reason with %q", text, err, reason)
			}
		}
	}
	if _, err := routes([]netip.Addr{{}}, true); err == nil {
		t.Error("no address at all is accepted")
	}
}
