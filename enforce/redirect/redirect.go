// Package redirect makes the network namespace of a cell lead to the proxy: routes for the synthetic addresses and for
// literals that rules name, one rule that sends TCP to them to the transparent port, and the sockets that the proxy
// serves from outside. Everything else keeps having no route.
//
// It runs in the keeper, inside the new network namespace with lo up, with CAP_NET_ADMIN and CAP_NET_BIND_SERVICE over it.
// runtime/cell/keeper and integration may import it. Who is allowed to go where is not decided here: what has a route ends
// at the proxy, which judges it.
package redirect

import (
	"fmt"
	"net/netip"
	"slices"
)

// The ports on loopback. netproxy serves them, and enforce may not import netproxy, so the numbers stand here as well.
const (
	ProxyPort       = 3128
	TransparentPort = 3129
	NamePort        = 53
)

// Places of the sockets in what Listen returns: netproxy/control's descriptors in their order, without the control socket.
const (
	SocketProxy4       = iota // TCP 127.0.0.1:3128
	SocketTransparent4        // TCP 127.0.0.1:3129
	SocketNameUDP4            // UDP 127.0.0.53:53
	SocketNameTCP4            // TCP 127.0.0.53:53
	SocketProxy6              // TCP [::1]:3128
	SocketTransparent6        // TCP [::1]:3129
	SocketNameUDP6            // UDP [::1]:53
	SocketNameTCP6            // TCP [::1]:53
)

// The ranges of synthetic addresses: benchmarking (RFC 2544, RFC 6890) and a unique local prefix (RFC 4193). netproxy/dns
// hands addresses out of the same ones.
var (
	Synthetic4 = netip.MustParsePrefix("198.18.0.0/15")
	Synthetic6 = netip.MustParsePrefix("fdc0:c0c0:c0c0::/64")
)

// Addresses that lo gets besides loopback. Without one that is not loopback, getaddrinfo with AI_ADDRCONFIG finds no IPv4
// or IPv6 and answers nothing for that family (glibc 2.36, __check_pf), and "getent ahostsv4" and browsers do so. TCP to
// them stays inside, for servers that listen on the address of their interface. netproxy/dns gives them to no name.
var (
	Own4 = netip.MustParseAddr("198.18.0.1")
	Own6 = netip.MustParseAddr("fdc0:c0c0:c0c0::1")
)

// maxLiterals bounds the addresses that rules of one session name.
const maxLiterals = 4096

// Mode says how connections of programs that know of no proxy get to it.
type Mode string

// The modes.
const (
	ModeNone Mode = "none" // they do not: no route, ENETUNREACH
	ModeNAT  Mode = "nat"  // nf_tables redirects them to the transparent port
)

// Notes is what Install made.
type Notes struct {
	Mode   Mode
	IPv6   bool           // the namespace has ::1, so the IPv6 half was made and Listen(true) works
	Routes []netip.Prefix // local routes, in the order in which they were made
	// Untracked: TCP from loopback to loopback is not tracked. It is faster, and no wall.
	Untracked bool
}

// StepError is a step that the kernel refused.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }
func (e *StepError) Unwrap() error { return e.Err }

// MissingError says that this kernel cannot redirect: nf_tables or its NAT is not there. The namespace is as it was, and
// a session may go on; the proxy port and the resolver work, programs that ignore proxy variables reach nothing.
type MissingError struct{ StepError }

func (e *MissingError) Error() string {
	return e.StepError.Error() + " (this kernel has no nf_tables with NAT, or its modules are not loaded)"
}

// refuseLiteral says why no route may lead to a. The route is local, so it takes the address away from whatever else it
// meant inside.
func refuseLiteral(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.Zone() != "":
		return "not a plain address"
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return "stands for this host (RFC 1122 section 3.2.1.3)"
	case a.IsLoopback():
		return "loopback belongs to the cell's own servers"
	case a.IsLinkLocalUnicast():
		return "link-local addresses, metadata services among them, are never reachable"
	case a.IsMulticast():
		return "multicast"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	case Synthetic4.Contains(a) || Synthetic6.Contains(a):
		return "in a range of synthetic addresses, so it stands for a name"
	}
	return ""
}

// routes is what Install has to make: the synthetic ranges, then the literals, each once.
func routes(literals []netip.Addr, ipv6 bool) ([]netip.Prefix, error) {
	if len(literals) > maxLiterals {
		return nil, fmt.Errorf("%d addresses in rules, at most %d", len(literals), maxLiterals)
	}
	out := []netip.Prefix{Synthetic4}
	if ipv6 {
		out = append(out, Synthetic6)
	}
	for _, a := range literals {
		a = a.Unmap()
		if reason := refuseLiteral(a); reason != "" {
			return nil, fmt.Errorf("address %s in a rule: %s", a, reason)
		}
		if p := netip.PrefixFrom(a, a.BitLen()); (a.Is4() || ipv6) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}
