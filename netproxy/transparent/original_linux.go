package transparent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST of <linux/netfilter_ipv4.h> and IP6T_SO_ORIGINAL_DST of
// <linux/netfilter_ipv6/ip6_tables.h>; both are 80.
const soOriginalDst = 80

// OriginalDestination is the address that the other end of c connected to. The kernel looks it up in the connection table
// of the network namespace in which the listening socket was made, so it works from outside of that namespace.
//
// A connection without an entry there was not redirected: then its own local address is what was connected to, which is
// so with TPROXY and with a listener on the address itself. That is accepted only for an address that is not loopback;
// somebody who connects to the transparent port directly gets an error or, where the connection is tracked, the loopback
// address of that port. Callers must judge what they get.
func OriginalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("original destination: %v is no TCP address", c.LocalAddr())
	}
	here := unmap(local.AddrPort())
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("original destination of a connection to %s: %w", here, err)
	}
	var to netip.AddrPort
	var asked error
	err = raw.Control(func(fd uintptr) {
		if here.Addr().Is4() {
			to, asked = original4(int(fd))
		} else {
			to, asked = original6(int(fd))
		}
	})
	if err = errors.Join(err, asked); err == nil {
		return to, nil
	}
	if untracked(err) && !here.Addr().IsLoopback() {
		return here, nil
	}
	return netip.AddrPort{}, fmt.Errorf("original destination of a connection to %s: %w", here, err)
}

// untracked: ENOENT is a connection that is not in the table; ENOPROTOOPT is a kernel or a namespace without connection
// tracking (nf_getsockopt finds no handler), where nothing can have been redirected.
func untracked(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT)
}

// original4 reads a sockaddr_in (ip(7)) through the 20 bytes of an ipv6_mreq, which is how golang.org/x/sys hands out a
// buffer of at least 16 bytes. It works on IPv6 sockets with a mapped address too (ipv6_getsockopt passes SOL_IP on).
func original4(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockopt SO_ORIGINAL_DST: %w", err)
	}
	sa := v.Multiaddr
	if family := binary.NativeEndian.Uint16(sa[0:2]); family != unix.AF_INET {
		return netip.AddrPort{}, fmt.Errorf("getsockopt SO_ORIGINAL_DST: address family %d, want %d", family, unix.AF_INET)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), binary.BigEndian.Uint16(sa[2:4])), nil
}

// original6 reads a sockaddr_in6 (ipv6(7)), which is the first member of an ip6_mtuinfo.
func original6(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockopt IP6T_SO_ORIGINAL_DST: %w", err)
	}
	if v.Addr.Family != unix.AF_INET6 {
		return netip.AddrPort{}, fmt.Errorf("getsockopt IP6T_SO_ORIGINAL_DST: address family %d, want %d", v.Addr.Family, unix.AF_INET6)
	}
	port := binary.NativeEndian.AppendUint16(nil, v.Addr.Port) // the field holds the bytes as they go over the wire
	return netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
