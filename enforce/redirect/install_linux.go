package redirect

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// patience bounds each exchange with the kernel, which answers in well under a millisecond. A batch that it rejects as a
// whole is answered once (nfnetlink_rcv_batch), while package nftables waits for one answer to each message.
const patience = 2 * time.Second

// Install prepares the calling thread's network namespace, which must be new: it expects no table and no route of its own
// there. Literals are the addresses that rules name; those of a family that the namespace lacks are left out.
//
// A *MissingError leaves the namespace as it was. After any other error the namespace must be given up.
func Install(literals []netip.Addr) (Notes, error) { return install(literals, true) }

func install(literals []netip.Addr, untrack bool) (Notes, error) {
	notes := Notes{Mode: ModeNone}
	var err error
	if notes.IPv6, err = haveIPv6(); err != nil {
		return notes, err
	}
	wanted, err := routes(literals, notes.IPv6)
	if err != nil {
		return notes, err
	}
	// The rule comes first: at no time does an address have a route that the rule does not cover.
	var missing *MissingError
	err = installRules(hooks(notes.IPv6, untrack))
	if untrack && errors.As(err, &missing) { // perhaps it is only what makes things faster
		untrack = false
		err = installRules(hooks(notes.IPv6, untrack))
	}
	if err != nil {
		return notes, err
	}
	if err := lead(wanted, notes.IPv6); err != nil {
		return notes, err
	}
	notes.Mode, notes.Routes, notes.Untracked = ModeNAT, wanted, untrack
	return notes, nil
}

// haveIPv6 says whether ::1 can be used. A kernel without IPv6 refuses the socket, net.ipv6.conf.lo.disable_ipv6 and
// ipv6.disable=1 the address.
func haveIPv6() (bool, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, &StepError{"look for IPv6: socket AF_INET6", err}
	}
	defer unix.Close(fd)
	err = unix.Bind(fd, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return false, nil
	}
	if err != nil {
		return false, &StepError{"look for IPv6: bind ::1", err}
	}
	return true, nil
}

func dialRules() (*nftables.Conn, error) {
	return nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return c.SetDeadline(time.Now().Add(patience))
	}))
}

func installRules(hooks []hook) error {
	c, err := dialRules()
	if err != nil {
		return judge("open NETLINK_NETFILTER", err)
	}
	defer c.CloseLasting()
	// Loads the module, and asks for the subsystem in a way that is answered when it is missing: nfnetlink_rcv_msg says
	// EINVAL then.
	if _, err := c.ListTablesOfFamily(nftables.TableFamilyINet); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return &MissingError{StepError{"list the tables of nf_tables", err}}
		}
		return judge("list the tables of nf_tables", err)
	}
	// One batch, which the kernel takes as a whole or not at all.
	c.CreateTable(table())
	for _, h := range hooks {
		c.AddChain(h.chain)
		for _, r := range h.rules {
			c.AddRule(&nftables.Rule{Table: table(), Chain: h.chain, Exprs: r})
		}
	}
	return judge("redirect TCP with nf_tables", c.Flush())
}

// judge tells a kernel that lacks something from a kernel that refuses. ENOENT is what nf_tables says of a chain type or
// an expression that it cannot load (nf_tables_newchain, nft_expr_type_get).
func judge(step string, err error) error {
	if err == nil {
		return nil
	}
	// Of several errors any but "missing" is one that has to be heard.
	for _, denied := range []error{unix.EPERM, unix.EACCES, unix.EEXIST, unix.ENOMEM, unix.ENOBUFS, unix.EBUSY, unix.EINVAL, os.ErrDeadlineExceeded} {
		if errors.Is(err, denied) {
			return &StepError{step, err}
		}
	}
	for _, lacking := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOSYS} {
		if errors.Is(err, lacking) {
			return &MissingError{StepError{step, err}}
		}
	}
	return &StepError{step, err}
}

// loopback is lo's index, the same in every namespace (LOOPBACK_IFINDEX in include/net/flow.h).
const loopback = 1

// lead gives lo its own addresses and makes the routes. They are local: a unicast route to lo does not do for IPv4, where
// connections seem to succeed with the source 0.0.0.0 and then hang (measured on Linux 6.18).
func lead(to []netip.Prefix, ipv6 bool) error {
	var messages []change
	for _, a := range owned(ipv6) {
		messages = append(messages, change{"add the address " + a.String(), addressMessage, netip.PrefixFrom(a, a.BitLen())})
	}
	for _, p := range to {
		messages = append(messages, change{"add a local route to " + p.String(), routeMessage, p})
	}
	c, err := dialRoutes()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, m := range messages {
		if err := m.make(c); err != nil {
			return &StepError{m.step, err}
		}
	}
	return nil
}

func owned(ipv6 bool) []netip.Addr {
	if ipv6 {
		return []netip.Addr{Own4, Own6}
	}
	return []netip.Addr{Own4}
}

func dialRoutes() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, &StepError{"open NETLINK_ROUTE", err}
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		c.Close()
		return nil, &StepError{"bound the wait for NETLINK_ROUTE", err}
	}
	return c, nil
}

// change is one message to NETLINK_ROUTE about a network.
type change struct {
	step    string
	message func(netip.Prefix) (netlink.Message, error)
	to      netip.Prefix
}

func (m change) make(c *netlink.Conn) error {
	message, err := m.message(m.to)
	if err != nil {
		return err
	}
	_, err = c.Execute(message)
	return err
}

const newOne = netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl

// addressMessage is RTM_NEWADDR (rtnetlink(7)): a struct ifaddrmsg and its attributes. Nobody else is on lo, so there is
// no duplicate to look for.
func addressMessage(p netip.Prefix) (netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
	e.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
	attributes, err := e.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	head := []byte{familyOf(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	head = binary.NativeEndian.AppendUint32(head, loopback)
	return netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWADDR, Flags: newOne}, Data: append(head, attributes...)}, nil
}

// routeMessage is RTM_NEWROUTE (rtnetlink(7)): a struct rtmsg and its attributes.
func routeMessage(p netip.Prefix) (netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.RTA_DST, p.Addr().AsSlice())
	e.Uint32(unix.RTA_OIF, loopback)
	attributes, err := e.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	head := []byte{familyOf(p.Addr()), byte(p.Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	return netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWROUTE, Flags: newOne},
		Data:   append(head, attributes...),
	}, nil
}

func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
