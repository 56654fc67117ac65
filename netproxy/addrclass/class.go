package addrclass

import "net/netip"

// Class is the kind of an address.
type Class uint8

// The zero Class is Invalid, so that a forgotten value is refused.
const (
	Invalid       Class = iota // no address, or one with a zone
	Public                     // global unicast
	Private                    // RFC 1918, unique local
	Loopback                   // this host
	LinkLocal                  // this link
	CGNAT                      // shared space between a provider and its customers, RFC 6598
	Metadata                   // a cloud's metadata or credential service
	Multicast                  // a group
	Broadcast                  // all hosts of a link
	Reserved                   // not for hosts, or not allocated
	Documentation              // for examples, and for test networks
	Benchmark                  // for measurements, and for this proxy's synthetic addresses
	Unspecified                // no host, RFC 1122
	Mapped                     // ::ffff:a.b.c.d
	Compatible                 // ::a.b.c.d
	Translated                 // ::ffff:0:a.b.c.d
	NAT64                      // 64:ff9b::a.b.c.d
	LocalNAT64                 // 64:ff9b:1::/48, layout chosen by the network
	SixToFour                  // 2002:AABB:CCDD::/48
	Teredo                     // 2001:0:SERVER:flags:port:CLIENT
	ISATAP                     // an interface id of 0:5efe:a.b.c.d under any prefix, RFC 5214
)

var classNames = [...]string{
	Invalid: "invalid", Public: "public", Private: "private", Loopback: "loopback", LinkLocal: "link-local", CGNAT: "carrier-grade NAT",
	Metadata: "cloud metadata", Multicast: "multicast", Broadcast: "broadcast", Reserved: "reserved", Documentation: "documentation",
	Benchmark: "benchmark", Unspecified: "unspecified", Mapped: "IPv4-mapped", Compatible: "IPv4-compatible", Translated: "IPv4-translated",
	NAT64: "NAT64", LocalNAT64: "local NAT64", SixToFour: "6to4", Teredo: "Teredo", ISATAP: "ISATAP",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "invalid"
}

// never tells the classes that no rule opens: nothing a rule could sensibly mean lives there, and what does live there
// (the host's own services, credentials of the machine) is what the wall is for.
func (c Class) never() bool {
	switch c {
	case Invalid, Loopback, LinkLocal, Metadata, Multicast, Broadcast, Unspecified:
		return true
	}
	return false
}

// Kind is the result of Classify.
type Kind struct {
	Class  Class
	Range  netip.Prefix // the registry line; invalid for a public IPv4 address
	Source string       // RFC or provider

	// Inner holds the IPv4 addresses that a translator or tunnel would send the packets to. There are several where
	// the layout is ambiguous (LocalNAT64) or where two machines are named (Teredo: server and client).
	Inner []netip.Addr
}

// Classify looks a up. Embedded IPv4 addresses are returned, not judged: Allowed does that.
func Classify(a netip.Addr) Kind {
	if !a.IsValid() || a.Zone() != "" {
		return Kind{Class: Invalid, Source: "not a plain address"}
	}
	if a.Is4() {
		e := lookup(a)
		return Kind{Class: e.class, Range: e.prefix, Source: e.source}
	}
	b := a.As16()
	e := lookup(a)
	k := Kind{Class: e.class, Range: e.prefix, Source: e.source}
	switch e.class {
	case Mapped, Compatible, Translated, NAT64:
		k.Inner = []netip.Addr{four(b[12:16])}
	case LocalNAT64:
		k.Inner = localNAT64(b)
	case SixToFour:
		k.Inner = []netip.Addr{four(b[2:6])}
	case Teredo: // RFC 4380 section 4: the client's address is stored inverted
		k.Inner = []netip.Addr{four(b[4:8]), four([]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case Public, Private, Reserved, Documentation:
		if isISATAP(b) {
			k.Class, k.Source, k.Inner = ISATAP, "RFC 5214", []netip.Addr{four(b[12:16])}
		}
	}
	return k
}

// isISATAP looks at the interface id: 00-00-5E-FE or, with the universal bit, 02-00-5E-FE before the IPv4 address
// (RFC 5214 section 6.1).
func isISATAP(b [16]byte) bool {
	return (b[8] == 0x00 || b[8] == 0x02) && b[9] == 0x00 && b[10] == 0x5e && b[11] == 0xfe
}

// localNAT64 lists the IPv4 addresses for each prefix length that RFC 6052 section 2.2 allows within the /48. Octet 8
// is skipped by the layout. A candidate in 0.0.0.0/8 is only the padding of another layout.
func localNAT64(b [16]byte) []netip.Addr {
	var out []netip.Addr
	for _, c := range [][]byte{
		{b[6], b[7], b[9], b[10]},    // /48
		{b[7], b[9], b[10], b[11]},   // /56
		{b[9], b[10], b[11], b[12]},  // /64
		{b[12], b[13], b[14], b[15]}, // /96
	} {
		if c[0] != 0 {
			out = append(out, four(c))
		}
	}
	return out
}

func four(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
