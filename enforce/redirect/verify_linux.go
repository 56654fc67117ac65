package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Verify reads back what Install says that it made: exactly the one table with its chains and rules, and no route but loopback's
// own and the noted ones. It is the proof that nothing else has a way, so it must run where Install ran.
func Verify(notes Notes) error {
	if notes.Mode == ModeNAT {
		if err := verifyRules(hooks(notes.IPv6, notes.Untracked)); err != nil {
			return err
		}
	}
	if err := verifyAddresses(notes); err != nil {
		return err
	}
	return verifyRoutes(notes)
}

func verifyRules(want []hook) error {
	c, err := dialRules()
	if err != nil {
		return &StepError{"open NETLINK_NETFILTER", err}
	}
	defer c.CloseLasting()
	chains, err := c.ListChains()
	if err != nil {
		return &StepError{"list the chains of nf_tables", err}
	}
	if len(chains) != len(want) {
		return fmt.Errorf("nf_tables has %d chains, want %d", len(chains), len(want))
	}
	for _, h := range want {
		if !slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return sameChain(c, h.chain) }) {
			return fmt.Errorf("nf_tables lacks the chain %s of table %s, or has another one of that name", h.chain.Name, h.chain.Table.Name)
		}
		if err := verifyChain(c, h); err != nil {
			return err
		}
	}
	return nil
}

func verifyChain(c *nftables.Conn, want hook) error {
	got, err := c.GetRules(table(), want.chain)
	if err != nil {
		return &StepError{"list the rules of nf_tables", err}
	}
	if len(got) != len(want.rules) {
		return fmt.Errorf("the chain %s of nf_tables has %d rules, want %d", want.chain.Name, len(got), len(want.rules))
	}
	for i, r := range got {
		if !reflect.DeepEqual(r.Exprs, want.rules[i]) {
			return fmt.Errorf("rule %d of the chain %s of nf_tables is not the one that was made", i+1, want.chain.Name)
		}
	}
	return nil
}

func sameChain(a, b *nftables.Chain) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Table.Name == b.Table.Name && a.Table.Family == b.Table.Family &&
		a.Hooknum != nil && *a.Hooknum == *b.Hooknum && a.Priority != nil && *a.Priority == *b.Priority
}

// verifyAddresses finds exactly loopback and what Install added.
func verifyAddresses(notes Notes) error {
	var want []netip.Addr
	if notes.Mode == ModeNAT {
		want = owned(notes.IPv6)
	}
	messages, err := list("list the addresses", unix.RTM_GETADDR, unix.SizeofIfAddrmsg)
	if err != nil {
		return err
	}
	var got []netip.Addr
	for _, m := range messages {
		a, err := parseAddress(m.Data)
		if err != nil {
			return &StepError{"list the addresses", err}
		}
		if !a.IsLoopback() && !slices.Contains(want, a) {
			return fmt.Errorf("an address %s that nobody added", a)
		}
		got = append(got, a)
	}
	for _, a := range want {
		if !slices.Contains(got, a) {
			return fmt.Errorf("lo does not have the address %s", a)
		}
	}
	return nil
}

// verifyRoutes does not ask for the routes to lo's own addresses: the kernel makes those of IPv6 a moment later
// (addrconf_dad_work), and the range covers them.
func verifyRoutes(notes Notes) error {
	got, err := listRoutes()
	if err != nil {
		return err
	}
	want := notes.Routes
	for _, p := range want {
		if !slices.Contains(got, route{p, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, loopback}) {
			return fmt.Errorf("no local route to %s", p)
		}
	}
	for _, r := range got {
		if !r.own(notes) && !slices.Contains(want, r.to) {
			return fmt.Errorf("a route to %s (type %d, table %d, interface %d) that nobody made", r.to, r.kind, r.table, r.out)
		}
	}
	return nil
}

type route struct {
	to    netip.Prefix
	table uint32
	kind  byte
	out   uint32 // interface
}

// own are the routes that the kernel makes by itself for lo and its addresses.
func (r route) own(notes Notes) bool {
	to := r.to.Addr()
	return r.out == loopback && (to.IsLoopback() || r.kind == unix.RTN_MULTICAST || to.IsMulticast() ||
		notes.Mode == ModeNAT && r.to.IsSingleIP() && slices.Contains(owned(notes.IPv6), to))
}

// list dumps what a request finds in all address families. size is that of the family's fixed header.
func list(step string, request netlink.HeaderType, size int) ([]netlink.Message, error) {
	c, err := dialRoutes()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	messages, err := c.Execute(netlink.Message{Header: netlink.Header{Type: request, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, size)})
	if err != nil {
		return nil, &StepError{step, err}
	}
	return messages, nil
}

func listRoutes() ([]route, error) {
	messages, err := list("list the routes", unix.RTM_GETROUTE, unix.SizeofRtMsg)
	if err != nil {
		return nil, err
	}
	var out []route
	for _, m := range messages {
		r, err := parseRoute(m.Data)
		if err != nil {
			return nil, &StepError{"list the routes", err}
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRoute(data []byte) (route, error) {
	if len(data) < unix.SizeofRtMsg {
		return route{}, fmt.Errorf("a route in %d bytes", len(data))
	}
	address := netip.IPv4Unspecified() // a default route has no destination attribute
	if data[0] == unix.AF_INET6 {
		address = netip.IPv6Unspecified()
	}
	r := route{table: uint32(data[4]), kind: data[7]}
	bits := int(data[1])
	d, err := netlink.NewAttributeDecoder(data[unix.SizeofRtMsg:])
	if err != nil {
		return route{}, err
	}
	for d.Next() {
		switch d.Type() {
		case unix.RTA_DST:
			a, ok := netip.AddrFromSlice(d.Bytes())
			if !ok {
				return route{}, errors.New("a route to something that is no IP address")
			}
			address = a
		case unix.RTA_OIF:
			r.out = d.Uint32()
		case unix.RTA_TABLE:
			r.table = d.Uint32()
		}
	}
	r.to = netip.PrefixFrom(address, bits)
	return r, d.Err()
}

func parseAddress(data []byte) (netip.Addr, error) {
	if len(data) < unix.SizeofIfAddrmsg {
		return netip.Addr{}, fmt.Errorf("an address in %d bytes", len(data))
	}
	d, err := netlink.NewAttributeDecoder(data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return netip.Addr{}, err
	}
	for d.Next() {
		if d.Type() != unix.IFA_ADDRESS {
			continue
		}
		if a, ok := netip.AddrFromSlice(d.Bytes()); ok {
			return a, nil
		}
	}
	return netip.Addr{}, errors.Join(d.Err(), errors.New("an entry without an IP address"))
}
