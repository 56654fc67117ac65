package egress

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Places to go. The first two belong to nobody (RFC 5737, RFC 3849); literal is one that a rule of the test names.
var (
	far4     = netip.MustParseAddr("203.0.113.9")
	far6     = netip.MustParseAddr("2001:db8::9")
	literal4 = netip.MustParseAddr("203.0.113.77")
	literal6 = netip.MustParseAddr("2001:db8::77")
)

// attempt is one thing that a process tries. inside is what it gets in the cell's namespace: "" for EPERM, or the
// answers of the network there, which has a loopback that is down and nothing else. It never gets more than EPERM
// anywhere else. hook is which program tells about it.
type attempt struct {
	name   string
	hook   string
	inside []string
	do     func() error
}

var (
	none    = []string{"ENETUNREACH", "EADDRNOTAVAIL"} // it got past the programs
	works   = []string{"ok"}
	noThere = []string{"ECONNREFUSED", "ENOENT"}
)

var attempts = []attempt{
	{"tcp4 far", "connect4", nil, func() error { return tcp(far4) }},
	{"tcp6 far", "connect6", nil, func() error { return tcp(far6) }},
	{"tcp mapped far", "connect6", nil, func() error {
		return on(unix.AF_INET6, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, sa6(far4)) })
	}},
	{"tcp4 loopback", "connect4", none, func() error { return tcp(netip.MustParseAddr("127.9.9.9")) }},
	{"tcp4 any", "connect4", none, func() error { return tcp(netip.IPv4Unspecified()) }},
	{"tcp6 loopback", "connect6", none, func() error { return tcp(netip.IPv6Loopback()) }},
	{"tcp4 synthetic", "connect4", none, func() error { return tcp(netip.MustParseAddr("198.19.255.255")) }},
	{"tcp4 before synthetic", "connect4", nil, func() error { return tcp(netip.MustParseAddr("198.17.255.255")) }},
	{"tcp4 after synthetic", "connect4", nil, func() error { return tcp(netip.MustParseAddr("198.20.0.0")) }},
	{"tcp6 synthetic", "connect6", none, func() error { return tcp(netip.MustParseAddr("fdc0:c0c0:c0c0::ffff")) }},
	{"tcp6 beside synthetic", "connect6", nil, func() error { return tcp(netip.MustParseAddr("fdc0:c0c0:c0c0:1::1")) }},
	{"tcp4 literal", "connect4", none, func() error { return tcp(literal4) }},
	{"tcp6 literal", "connect6", none, func() error { return tcp(literal6) }},
	{"tcp mapped literal", "connect6", none, func() error {
		return on(unix.AF_INET6, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, sa6(literal4)) })
	}},
	{"tcp4 metadata", "connect4", nil, func() error { return tcp(netip.MustParseAddr("169.254.169.254")) }},
	{"tcp4 private", "connect4", nil, func() error { return tcp(netip.MustParseAddr("10.0.0.1")) }},
	{"fast open", "connect4", nil, func() error {
		return on(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, sa4(far4)) })
	}},
	{"udp4 far", "sendmsg4", nil, func() error { return udp(far4) }},
	{"udp6 far", "sendmsg6", nil, func() error { return udp(far6) }},
	{"udp4 loopback", "sendmsg4", none, func() error { return udp(netip.MustParseAddr("127.0.0.1")) }},
	{"udp4 multicast", "sendmsg4", nil, func() error { return udp(netip.MustParseAddr("224.0.0.251")) }},
	{"udp4 broadcast", "sendmsg4", nil, func() error { return udp(netip.MustParseAddr("255.255.255.255")) }},
	{"udp6 link-local", "sendmsg6", nil, func() error { return udp(netip.MustParseAddr("fe80::1")) }},
	{"udp4 connected far", "connect4", nil, func() error {
		return on(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error { return unix.Connect(fd, sa4(far4)) })
	}},
	{"bind4 any", "bind4", works, func() error {
		return on(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Bind(fd, sa4(netip.IPv4Unspecified())) })
	}},
	{"bind4 far", "bind4", nil, func() error {
		return on(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Bind(fd, sa4(far4)) })
	}},
	{"bind6 any", "bind6", works, func() error {
		return on(unix.AF_INET6, unix.SOCK_DGRAM, 0, func(fd int) error { return unix.Bind(fd, sa6(netip.IPv6Unspecified())) })
	}},
	{"bind6 far", "bind6", nil, func() error {
		return on(unix.AF_INET6, unix.SOCK_DGRAM, 0, func(fd int) error { return unix.Bind(fd, sa6(far6)) })
	}},
	{"socket tcp", "sock_create", works, func() error { return on(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP, nothing) }},
	{"socket udp", "sock_create", works, func() error { return on(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP, nothing) }},
	{"socket mptcp", "sock_create", nil, func() error { return on(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, nothing) }},
	{"socket raw", "sock_create", nil, func() error { return on(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, nothing) }},
	{"socket udplite", "sock_create", nil, func() error { return on(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, nothing) }},
	{"unix abstract", "connect_unix", noThere, func() error {
		return on(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@coworker-test-nobody"}) })
	}},
	{"unix path", "connect_unix", noThere, func() error {
		return on(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "/nonexistent/socket"}) })
	}},
	{"unix datagram", "sendmsg_unix", noThere, func() error {
		return on(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: "@coworker-test-nobody"})
		})
	}},
	{"socket pair", "", works, func() error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			_, err = unix.Write(pair[0], []byte("x"))
		}
		return err
	}},
	{"pipe and file", "", works, func() error { _, err := os.ReadFile("/proc/self/status"); return err }},
}

func nothing(int) error { return nil }

// on makes a socket and uses it.
func on(family, kind, protocol int, use func(fd int) error) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

func sa4(a netip.Addr) unix.Sockaddr { return &unix.SockaddrInet4{Port: 8080, Addr: a.As4()} }
func sa6(a netip.Addr) unix.Sockaddr { return &unix.SockaddrInet6{Port: 8080, Addr: a.As16()} }

func to(a netip.Addr) (int, unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, sa4(a)
	}
	return unix.AF_INET6, sa6(a)
}

func tcp(a netip.Addr) error {
	family, sa := to(a)
	return on(family, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, sa) })
}

func udp(a netip.Addr) error {
	family, sa := to(a)
	return on(family, unix.SOCK_DGRAM, 0, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, sa)
	})
}
