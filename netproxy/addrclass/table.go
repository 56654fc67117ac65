package addrclass

import "net/netip"

// entry is one line of a registry.
type entry struct {
	prefix netip.Prefix
	class  Class
	source string
}

// table joins the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, with the later RFCs they name), the
// multicast and reserved blocks of the address-space registries, and the metadata services of cloud providers, which no
// registry lists. The longest prefix wins, so the order has no meaning. Blocks that the registries call globally
// reachable are entered as Public only where they lie inside a larger block that is not.
var table = parseTable([]textEntry{
	// IPv4
	{"0.0.0.0/8", Unspecified, "RFC 791: this network; Linux connects 0.0.0.0 to loopback"},
	{"10.0.0.0/8", Private, "RFC 1918"},
	{"100.64.0.0/10", CGNAT, "RFC 6598"},
	{"127.0.0.0/8", Loopback, "RFC 1122"},
	{"169.254.0.0/16", LinkLocal, "RFC 3927"},
	{"172.16.0.0/12", Private, "RFC 1918"},
	{"192.0.0.0/24", Reserved, "RFC 6890: IETF protocol assignments"},
	{"192.0.0.9/32", Public, "RFC 7723: PCP anycast"},
	{"192.0.0.10/32", Public, "RFC 8155: TURN anycast"},
	{"192.0.2.0/24", Documentation, "RFC 5737"},
	{"192.88.99.0/24", Reserved, "RFC 7526: former 6to4 relay anycast"},
	{"192.168.0.0/16", Private, "RFC 1918"},
	{"198.18.0.0/15", Benchmark, "RFC 2544; also this proxy's synthetic addresses"},
	{"198.51.100.0/24", Documentation, "RFC 5737"},
	{"203.0.113.0/24", Documentation, "RFC 5737"},
	{"224.0.0.0/4", Multicast, "RFC 5771"},
	{"240.0.0.0/4", Reserved, "RFC 1112"},
	{"255.255.255.255/32", Broadcast, "RFC 919"},

	// IPv6. Only 2000::/3 is allocated for global unicast (RFC 4291); all else is refused unless listed here.
	{"::/0", Reserved, "RFC 4291: not allocated for global unicast"},
	{"2000::/3", Public, "RFC 4291: global unicast"},
	{"::/128", Unspecified, "RFC 4291"},
	{"::1/128", Loopback, "RFC 4291"},
	{"::/96", Compatible, "RFC 4291: deprecated IPv4-compatible"},
	{"::ffff:0:0/96", Mapped, "RFC 4291"},
	{"::ffff:0:0:0/96", Translated, "RFC 2765: IPv4-translated"},
	{"64:ff9b::/96", NAT64, "RFC 6052"},
	{"64:ff9b:1::/48", LocalNAT64, "RFC 8215"},
	{"100::/64", Reserved, "RFC 6666: discard only"},
	{"100:0:0:1::/64", Reserved, "RFC 9780: dummy prefix"},
	{"2001::/23", Reserved, "RFC 2928: IETF protocol assignments"},
	{"2001::/32", Teredo, "RFC 4380"},
	{"2001:1::1/128", Public, "RFC 7723: PCP anycast"},
	{"2001:1::2/128", Public, "RFC 8155: TURN anycast"},
	{"2001:2::/48", Benchmark, "RFC 5180"},
	{"2001:3::/32", Public, "RFC 7450: AMT"},
	{"2001:4:112::/48", Public, "RFC 7535: AS112-v6"},
	{"2001:10::/28", Reserved, "RFC 4843: former ORCHID"},
	{"2001:20::/28", Reserved, "RFC 7343: ORCHIDv2 names hosts, not places"},
	{"2001:30::/28", Reserved, "RFC 9374: drone identifiers"},
	{"2001:db8::/32", Documentation, "RFC 3849"},
	{"2002::/16", SixToFour, "RFC 3056"},
	{"3fff::/20", Documentation, "RFC 9637"},
	{"5f00::/16", Reserved, "RFC 9602: segment routing"},
	{"fc00::/7", Private, "RFC 4193: unique local"},
	{"fe80::/10", LinkLocal, "RFC 4291"},
	{"fec0::/10", Private, "RFC 3879: former site-local"},
	{"ff00::/8", Multicast, "RFC 4291"},

	// Metadata and host-agent services. Those inside 169.254.0.0/16 are named for the reason text alone.
	{"169.254.169.254/32", Metadata, "AWS, GCP, Azure, OpenStack and others"},
	{"169.254.170.2/32", Metadata, "AWS ECS task credentials"},
	{"169.254.170.23/32", Metadata, "AWS EKS pod identity"},
	{"100.100.100.200/32", Metadata, "Alibaba Cloud"},
	{"168.63.129.16/32", Metadata, "Azure host agent"},
	{"192.0.0.192/32", Metadata, "Oracle Cloud (classic)"},
	{"fd00:ec2::/32", Metadata, "AWS instance services, ::254 and ::23 among them"},
	{"fd20:ce::254/128", Metadata, "GCP over IPv6"},
	{"fd00:c1::a9fe:a9fe/128", Metadata, "Oracle Cloud over IPv6"},
	{"fd00:42::42/128", Metadata, "Scaleway over IPv6"},
	{"fe80::a9fe:a9fe/128", Metadata, "OpenStack over IPv6"},
})

type textEntry struct {
	prefix string
	class  Class
	source string
}

// parseTable may panic: its input is the constant above, and a test loads it.
func parseTable(in []textEntry) []entry {
	out := make([]entry, 0, len(in))
	for _, e := range in {
		out = append(out, entry{netip.MustParsePrefix(e.prefix), e.class, e.source})
	}
	return out
}

// lookup finds the longest prefix that holds a. A mapped address must be unmapped first. IPv4 addresses no line holds
// are public: the IPv4 space is allocated.
func lookup(a netip.Addr) entry {
	best := entry{class: Public, source: "global unicast"}
	found := false
	for _, e := range table {
		if e.prefix.Contains(a) && (!found || e.prefix.Bits() > best.prefix.Bits()) {
			best, found = e, true
		}
	}
	return best
}
