package main

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// network tries every way out that is not the proxy.
func network() []attempt {
	tcp := func(name string) attempt {
		return attempt{"tcp:" + name, func(t *target) error { return connect(t.Net[name], unix.SOCK_STREAM, unix.IPPROTO_TCP) }}
	}
	udp := func(name string) attempt {
		return attempt{"udp:" + name, func(t *target) error { return datagram(t.Net[name], unix.SYS_SENDTO) }}
	}
	socket := func(name string, family, kind, protocol int) attempt {
		return attempt{"make-" + name, func(*target) error {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}}
	}
	return []attempt{
		tcp("loopback4"), tcp("loopback6"), tcp("far4"), tcp("far6"), tcp("metadata"), tcp("mapped"),
		udp("udp-loopback4"), udp("udp-loopback6"), udp("udp-far4"), udp("udp-far6"), udp("dns"), udp("quic"),
		{"udp-sendmsg", func(t *target) error { return datagram(t.Net["udp-far4"], unix.SYS_SENDMSG) }},
		{"udp-sendmmsg", func(t *target) error { return datagram(t.Net["udp-far4"], unix.SYS_SENDMMSG) }},
		{"udp-connected", func(t *target) error { return connect(t.Net["udp-far4"], unix.SOCK_DGRAM, 0) }},
		{"fast-open", func(t *target) error { return fastOpen(t.Net["far4"]) }},
		{"fast-open-option", func(t *target) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, 30, 1)
		}},
		{"multicast", func(*target) error { return datagram("224.0.0.251:5353", unix.SYS_SENDTO) }},
		{"link-local-scoped", func(*target) error { return datagram("[ff02::fb%1]:5353", unix.SYS_SENDTO) }},
		{"bind-far", func(t *target) error { return bind(t.Net["far4"]) }},
		socket("mptcp", unix.AF_INET, unix.SOCK_STREAM, 262),
		socket("mptcp6", unix.AF_INET6, unix.SOCK_STREAM, 262),
		socket("sctp", unix.AF_INET, unix.SOCK_STREAM, 132),
		socket("udplite", unix.AF_INET, unix.SOCK_DGRAM, 136),
		socket("dccp", unix.AF_INET, 6, 33),
		socket("ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		socket("ping6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6),
		socket("raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		socket("raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
		socket("packet", unix.AF_PACKET, unix.SOCK_RAW, 0x0300),
		socket("packet-datagram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300),
		socket("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		socket("alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		socket("bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1),
		socket("can", unix.AF_CAN, unix.SOCK_RAW, 1),
		socket("xdp", unix.AF_XDP, unix.SOCK_RAW, 0),
		socket("tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0),
		socket("rds", 21, unix.SOCK_SEQPACKET, 0),
		socket("qrtr", 42, unix.SOCK_DGRAM, 0),
		socket("smc", 43, unix.SOCK_STREAM, 0),
		socket("netlink-audit", unix.AF_NETLINK, unix.SOCK_RAW, 9),
		socket("netlink-uevent", unix.AF_NETLINK, unix.SOCK_RAW, 15),
		socket("netlink-xfrm", unix.AF_NETLINK, unix.SOCK_RAW, 6),
		socket("netlink-netfilter", unix.AF_NETLINK, unix.SOCK_RAW, 12),
		socket("netlink-route", unix.AF_NETLINK, unix.SOCK_RAW, 0),
		socket("tcp", unix.AF_INET, unix.SOCK_STREAM, 0),
		socket("udp6", unix.AF_INET6, unix.SOCK_DGRAM, 0),
		socket("unix", unix.AF_UNIX, unix.SOCK_DGRAM, 0),
	}
}

func sockaddr(address string) (unix.Sockaddr, int, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, 0, err
	}
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, unix.AF_INET, nil
	}
	to := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	if ap.Addr().Zone() != "" {
		to.ZoneId = 1
	}
	return to, unix.AF_INET6, nil
}

// open makes a socket that gives up soon: a silent drop must not stop the battery.
func open(address string, kind, protocol int) (int, unix.Sockaddr, error) {
	to, family, err := sockaddr(address)
	if err != nil {
		return -1, nil, err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, nil, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, to, nil
}

func connect(address string, kind, protocol int) error {
	fd, to, err := open(address, kind, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	if kind == unix.SOCK_STREAM {
		return nil
	}
	_, err = unix.Write(fd, []byte("attacker"))
	return err
}

func bind(address string) error {
	fd, to, err := open(address, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch a := to.(type) {
	case *unix.SockaddrInet4:
		a.Port = 0
	case *unix.SockaddrInet6:
		a.Port = 0
	}
	return unix.Bind(fd, to)
}

func datagram(address string, how uintptr) error {
	fd, to, err := open(address, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if how == unix.SYS_SENDTO {
		return unix.Sendto(fd, []byte("attacker"), 0, to)
	}
	a, ok := to.(*unix.SockaddrInet4)
	if !ok {
		return unix.EAFNOSUPPORT
	}
	raw := raw4(a)
	return sendRaw(fd, how, unsafe.Pointer(&raw), uint32(unsafe.Sizeof(raw)), 0)
}

func raw4(a *unix.SockaddrInet4) unix.RawSockaddrInet4 {
	return unix.RawSockaddrInet4{Family: unix.AF_INET, Port: uint16(a.Port>>8 | a.Port<<8&0xff00), Addr: a.Addr}
}

// fastOpen connects by sending, past anything that looks at connect only.
func fastOpen(address string) error {
	fd, to, err := open(address, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("attacker"), unix.MSG_FASTOPEN, to)
}
