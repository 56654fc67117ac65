package addrclass

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var public = Grant{Public: true}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		addr  string
		class Class
		inner string // joined by a blank
	}{
		{"8.8.8.8", Public, ""}, {"1.0.0.1", Public, ""}, {"192.0.0.9", Public, ""}, {"172.32.0.1", Public, ""}, {"100.128.0.1", Public, ""},
		{"0.0.0.0", Unspecified, ""}, {"0.1.2.3", Unspecified, ""}, {"10.255.255.255", Private, ""}, {"172.31.0.1", Private, ""},
		{"192.168.1.1", Private, ""}, {"127.255.0.1", Loopback, ""}, {"169.254.1.1", LinkLocal, ""}, {"100.127.0.1", CGNAT, ""},
		{"169.254.169.254", Metadata, ""}, {"169.254.170.2", Metadata, ""}, {"100.100.100.200", Metadata, ""}, {"168.63.129.16", Metadata, ""},
		{"192.0.0.192", Metadata, ""}, {"192.0.0.1", Reserved, ""}, {"192.88.99.1", Reserved, ""}, {"198.19.0.1", Benchmark, ""},
		{"192.0.2.1", Documentation, ""}, {"198.51.100.1", Documentation, ""}, {"203.0.113.1", Documentation, ""},
		{"224.0.0.251", Multicast, ""}, {"239.255.255.250", Multicast, ""}, {"240.0.0.1", Reserved, ""}, {"255.255.255.255", Broadcast, ""},
		{"2606:4700:4700::1111", Public, ""}, {"::", Unspecified, ""}, {"::1", Loopback, ""}, {"fe80::1", LinkLocal, ""},
		{"fe80::1%eth0", Invalid, ""}, {"fc00::1", Private, ""}, {"fdff::1", Private, ""}, {"fec0::1", Private, ""}, {"ff02::1", Multicast, ""},
		{"fd00:ec2::254", Metadata, ""}, {"fd00:ec2::23", Metadata, ""}, {"fd20:ce::254", Metadata, ""}, {"2001:db8::1", Documentation, ""},
		{"3fff:fff::1", Documentation, ""}, {"3fff:1000::1", Public, ""}, {"5f00::1", Reserved, ""}, {"100::1", Reserved, ""}, {"4000::1", Reserved, ""},
		{"2001:2::1", Benchmark, ""}, {"2001:20::1", Reserved, ""}, {"2001:1::1", Public, ""}, {"2001:200::1", Public, ""},
		{"::ffff:10.0.0.1", Mapped, "10.0.0.1"}, {"::ffff:a9fe:a9fe", Mapped, "169.254.169.254"}, {"::169.254.169.254", Compatible, "169.254.169.254"},
		{"::ffff:0:7f00:1", Translated, "127.0.0.1"}, {"64:ff9b::a9fe:a9fe", NAT64, "169.254.169.254"}, {"2002:a9fe:a9fe::", SixToFour, "169.254.169.254"},
		{"2001:0:7f00:1::5601:5601", Teredo, "127.0.0.1 169.254.169.254"}, {"2606::5efe:a9fe:a9fe", ISATAP, "169.254.169.254"},
		{"fd00::200:5efe:7f00:1", ISATAP, "127.0.0.1"}, {"64:ff9b:1::169.254.169.254", LocalNAT64, "169.254.169.254"},
		{"64:ff9b:1:a9fe:00a9:fe00::", LocalNAT64, "169.254.169.254 254.169.254.0 169.254.0.0"},
	} {
		k := Classify(netip.MustParseAddr(c.addr))
		var inner []string
		for _, a := range k.Inner {
			inner = append(inner, a.String())
		}
		if k.Class != c.class || strings.Join(inner, " ") != c.inner {
			t.Errorf("%s: %s %q, want %s %q", c.addr, k.Class, inner, c.class, c.inner)
		}
	}
	if k := Classify(netip.Addr{}); k.Class != Invalid {
		t.Errorf("no address: %s", k.Class)
	}
}

func TestAllowed(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fe80::1%eth0")}
	ranges := func(p ...string) (g Grant) {
		for _, s := range p {
			g.Ranges = append(g.Ranges, netip.MustParsePrefix(s))
		}
		return g
	}
	literal := func(s string) Grant { return Grant{Literal: netip.MustParseAddr(s)} }
	mixed := ranges("10.0.0.0/8")
	mixed.Public = true
	for _, c := range []struct {
		addr  string
		grant Grant
		want  bool
	}{
		{"8.8.8.8", Grant{}, false}, {"8.8.8.8", public, true}, {"2606:4700::1", public, true}, {"::ffff:8.8.8.8", public, true},
		{"10.0.0.1", public, false}, {"10.0.0.1", ranges("10.0.0.0/8"), true}, {"11.0.0.1", ranges("10.0.0.0/8"), false}, {"11.0.0.1", mixed, true}, {"10.0.0.1", mixed, true},
		{"10.0.0.1", literal("10.0.0.1"), true}, {"10.0.0.2", literal("10.0.0.1"), false}, {"::ffff:10.0.0.1", literal("10.0.0.1"), true},
		{"203.0.113.5", public, false}, {"203.0.113.5", ranges("203.0.113.0/24"), true}, {"198.18.0.1", public, false}, {"100.64.0.1", public, false},
		{"100.64.0.1", ranges("100.64.0.0/10"), true}, {"100.100.100.200", ranges("100.64.0.0/10"), false}, {"100.100.100.200", literal("100.100.100.200"), false},
		{"169.254.169.254", literal("169.254.169.254"), false}, {"169.254.3.4", ranges("169.254.0.0/16"), false}, {"fe80::1", literal("fe80::1"), false},
		{"127.0.0.1", ranges("127.0.0.0/8"), false}, {"127.0.0.1", literal("127.0.0.1"), false}, {"::1", literal("::1"), false}, {"0.0.0.0", literal("0.0.0.0"), false},
		{"127.0.0.1", Grant{HostService: true}, true}, {"::1", Grant{HostService: true}, true}, {"8.8.8.8", Grant{HostService: true, Public: true}, false},
		{"10.0.0.1", Grant{HostService: true}, false}, {"::127.0.0.1", Grant{HostService: true}, false},
		{"93.184.216.34", public, false}, {"93.184.216.34", literal("93.184.216.34"), false}, {"::ffff:93.184.216.34", public, false},
		{"64:ff9b::5db8:d822", public, false}, {"10.9.9.9", ranges("10.0.0.0/8"), false},
		{"64:ff9b::808:808", public, true}, {"64:ff9b::808:808", Grant{}, false}, {"64:ff9b::a00:1", public, false}, {"64:ff9b::a00:1", ranges("10.0.0.0/8"), true},
		{"64:ff9b::a9fe:a9fe", ranges("64:ff9b::/96"), false}, {"64:ff9b::7f00:1", literal("64:ff9b::7f00:1"), false},
		{"2002:808:808::1", public, false}, {"2002:808:808::1", ranges("2002::/16"), true}, {"2002:7f00:1::", ranges("2002::/16"), false},
		{"::8.8.8.8", public, false}, {"::169.254.169.254", ranges("::/96"), false}, {"2606::5efe:7f00:1", public, false}, {"2606::5efe:808:808", public, false},
		{"224.0.0.1", literal("224.0.0.1"), false}, {"255.255.255.255", literal("255.255.255.255"), false}, {"240.0.0.1", literal("240.0.0.1"), true},
	} {
		ok, reason := Allowed(netip.MustParseAddr(c.addr), c.grant, own)
		if ok != c.want {
			t.Errorf("%s under %+v: %v (%s), want %v", c.addr, c.grant, ok, reason, c.want)
		}
		if ok == (reason != "") {
			t.Errorf("%s: allowed %v with reason %q", c.addr, ok, reason)
		}
	}
}

func TestNameable(t *testing.T) {
	for s, want := range map[string]bool{
		"10.0.0.0/8": true, "203.0.113.0/24": true, "fc00::/7": true, "100.64.0.0/10": true, "140.82.112.0/20": true, "240.0.0.0/4": true, "64:ff9b::/96": true,
		"0.0.0.0/0": false, "::/0": false, "126.0.0.0/7": false, "169.254.0.0/16": false, "169.254.1.0/24": false, "127.0.0.1/32": false, "100.100.100.200/32": false,
		"fe80::/64": false, "fe00::/8": false, "224.0.0.0/3": false, "10.0.0.1/8": false, "::ffff:10.0.0.0/104": false, "::1/128": false, "fd00:ec2::/64": false,
	} {
		if err := NameableRange(netip.MustParsePrefix(s)); (err == nil) != want {
			t.Errorf("%s: %v, want nameable %v", s, err, want)
		}
	}
	if NameableRange(netip.Prefix{}) == nil {
		t.Error("no network is nameable")
	}
	for s, want := range map[string]bool{"10.0.0.5": true, "1.1.1.1": true, "fd00::5": true, "127.0.0.1": false, "::ffff:127.0.0.1": false, "64:ff9b::a9fe:a9fe": false, "::": false} {
		if err := Nameable(netip.MustParseAddr(s)); (err == nil) != want {
			t.Errorf("%s: %v, want nameable %v", s, err, want)
		}
	}
}

// embeddings are the ways to write one IPv4 address into an IPv6 address.
var embeddings = []func(v [4]byte) netip.Addr{
	func(v [4]byte) netip.Addr { return v6("::ffff:0:0", 12, v) },
	func(v [4]byte) netip.Addr { return v6("::", 12, v) },
	func(v [4]byte) netip.Addr { return v6("::ffff:0:0:0", 12, v) },
	func(v [4]byte) netip.Addr { return v6("64:ff9b::", 12, v) },
	func(v [4]byte) netip.Addr { return v6("64:ff9b:1::", 12, v) },
	func(v [4]byte) netip.Addr { return v6("2002::", 2, v) },
	func(v [4]byte) netip.Addr { return v6("2001::", 4, v) },
	func(v [4]byte) netip.Addr { return v6("2001:0:808:808::", 12, [4]byte{^v[0], ^v[1], ^v[2], ^v[3]}) },
	func(v [4]byte) netip.Addr { return v6("2606:4700::5efe:0:0", 12, v) },
	func(v [4]byte) netip.Addr { return v6("fd00::200:5efe:0:0", 12, v) },
}

func v6(prefix string, at int, v [4]byte) netip.Addr {
	b := netip.MustParseAddr(prefix).As16()
	copy(b[at:], v[:])
	return netip.AddrFrom16(b)
}

// No grant opens an address that stands for loopback, link-local, metadata or one of the machine's own addresses.
func TestNoEmbeddingOpensWhatIsNeverOpen(t *testing.T) {
	never := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("198.51.100.77/32")}
	own := []netip.Addr{netip.MustParseAddr("198.51.100.77")}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(never).Draw(t, "range")
		host := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "host")
		v := p.Addr().As4()
		for i := range v {
			mask := byte(0xff >> min(8, max(0, p.Bits()-8*i)))
			v[i] |= host[i] & mask
		}
		a := rapid.SampledFrom(embeddings).Draw(t, "embedding")(v)
		grant := Grant{Literal: a, Public: true, Ranges: []netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")}}
		if ok, _ := Allowed(a, grant, own); ok {
			t.Fatalf("%s (%v) is allowed", a, v)
		}
		if ok, _ := Allowed(a, Grant{HostService: true}, own); ok && !a.Unmap().IsLoopback() {
			t.Fatalf("%s is taken for loopback of the host", a)
		}
	})
}

// Without a grant nothing is allowed, and what a public grant allows is public itself or through NAT64.
func FuzzAllowed(f *testing.F) {
	for _, e := range table {
		b := e.prefix.Addr().As16()
		f.Add(b[:], e.prefix.Addr().Is4())
	}
	f.Fuzz(func(t *testing.T, b []byte, v4 bool) {
		if len(b) != 16 {
			return
		}
		a := netip.AddrFrom16([16]byte(b))
		if v4 {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		if ok, _ := Allowed(a, Grant{}, nil); ok {
			t.Fatalf("%s is allowed without a grant", a)
		}
		ok, _ := Allowed(a, public, nil)
		x := a.Unmap()
		std := x.IsLoopback() || x.IsPrivate() || x.IsMulticast() || x.IsUnspecified() || x.IsLinkLocalUnicast()
		if ok && std {
			t.Fatalf("%s is allowed as public", a)
		}
		if k := Classify(x); ok && k.Class != Public && k.Class != NAT64 {
			t.Fatalf("%s, %s, is allowed as public", a, k.Class)
		}
		// A grant for the address itself opens it or nothing does.
		if _, reason := Allowed(a, Grant{Literal: a}, nil); reason != "" && Nameable(a) == nil {
			t.Fatalf("%s is nameable but its own rule does not open it: %s", a, reason)
		}
	})
}

func TestClassNames(t *testing.T) {
	for c := Invalid; c <= ISATAP; c++ {
		if c.String() == "" {
			t.Errorf("class %d has no name", c)
		}
	}
	if Class(200).String() != "invalid" {
		t.Error("an unknown class has a name")
	}
}
