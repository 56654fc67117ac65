package addrclass

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Grant is what a rule says about addresses. The zero Grant allows none.
type Grant struct {
	// Literal is the address that the rule consists of.
	Literal netip.Addr
	// Ranges are the networks that the rule names after "=".
	Ranges []netip.Prefix
	// Public allows every public address: the rule is a name and pins no range.
	Public bool
	// HostService is the rule host.coworker.internal: loopback of the machine outside, and nothing else.
	HostService bool
}

// Allowed says whether the proxy may dial a under g. own holds the addresses of the machine's interfaces: a public name
// that points at one of them reaches the services of this very host. The reason is set when the answer is no.
//
// A rule that names ranges is a pin: an address outside of them is refused even if it is public, because the person
// said where that name lives.
func Allowed(a netip.Addr, g Grant, own []netip.Addr) (bool, string) {
	a = a.Unmap() // the kernel connects ::ffff:a.b.c.d over IPv4, so it is that address (RFC 4291 section 2.5.5.2)
	k := Classify(a)
	if k.Class == Loopback && g.HostService {
		return true, ""
	}
	if g.HostService {
		return false, fmt.Sprintf("host.coworker.internal is loopback, and %s is not", a)
	}
	if reason := forbidden(a, k, own); reason != "" {
		return false, reason
	}
	switch {
	case g.names(a):
		return true, ""
	case k.Class == NAT64 && g.allowsInner(k, own): // a DNS64 network reaches IPv4 hosts this way (RFC 6147)
		return true, ""
	case k.Class == Public && g.Public:
		return true, ""
	case k.Class == Public && (len(g.Ranges) > 0 || g.Literal.IsValid()):
		return false, fmt.Sprintf("%s lies outside the addresses that the rule names", a)
	case k.Class == Public:
		return false, fmt.Sprintf("no rule allows %s", a)
	}
	return false, fmt.Sprintf("%s lies in %s space (%s), which only a rule that names it or its range opens", a, k.Class, k.Source)
}

// forbidden gives the reason why no rule at all opens a, or "".
func forbidden(a netip.Addr, k Kind, own []netip.Addr) string {
	isOwn := func(x netip.Addr) bool {
		return slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Unmap().WithZone("") == x })
	}
	switch {
	case k.Class == Loopback:
		return fmt.Sprintf("%s is loopback, which is reached only as host.coworker.internal", a)
	case k.Class.never():
		return fmt.Sprintf("%s lies in %s space (%s), which no rule opens", a, k.Class, k.Source)
	case isOwn(a):
		return fmt.Sprintf("%s is an address of this machine, which is reached only as host.coworker.internal", a)
	}
	for _, in := range k.Inner {
		if c := Classify(in); c.Class.never() {
			return fmt.Sprintf("%s lies in %s space and stands for %s in %s space, which no rule opens", a, k.Class, in, c.Class)
		}
		if isOwn(in) {
			return fmt.Sprintf("%s lies in %s space and stands for %s, an address of this machine", a, k.Class, in)
		}
	}
	return ""
}

func (g Grant) names(a netip.Addr) bool {
	if g.Literal.IsValid() && g.Literal.Unmap() == a {
		return true
	}
	return slices.ContainsFunc(g.Ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (g Grant) allowsInner(k Kind, own []netip.Addr) bool {
	for _, in := range k.Inner {
		if ok, _ := Allowed(in, g, own); !ok {
			return false
		}
	}
	return len(k.Inner) > 0
}

// Nameable refuses an address that a rule may not consist of, when the rule is loaded and not at the first dial.
func Nameable(a netip.Addr) error {
	if reason := forbidden(a.Unmap(), Classify(a.Unmap()), nil); reason != "" {
		return errors.New(reason)
	}
	return nil
}

// NameableRange refuses a network that a rule may not name: one that overlaps loopback, link-local, multicast or
// unspecified space, or lies within a metadata service. Single metadata addresses inside a network that people really
// use (100.100.100.200 in 100.64.0.0/10) do not spoil the network; Allowed refuses them one by one.
func NameableRange(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("not a network")
	case p != p.Masked():
		return fmt.Errorf("%s has bits set after its length; the network is %s", p, p.Masked())
	case p.Addr().Is4In6():
		return fmt.Errorf("%s is IPv4-mapped; write the IPv4 network", p)
	}
	for _, e := range table {
		inside := e.prefix.Bits() <= p.Bits() && e.prefix.Contains(p.Addr())
		wide := e.class == Loopback || e.class == LinkLocal || e.class == Multicast || e.class == Unspecified
		if e.class.never() && inside || wide && e.prefix.Overlaps(p) {
			return fmt.Errorf("%s overlaps %s, %s (%s), which no rule opens", p, e.prefix, e.class, e.source)
		}
	}
	return nil
}
