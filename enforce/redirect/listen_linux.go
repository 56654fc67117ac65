package redirect

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted. The kernel lowers it to net.core.somaxconn of the namespace,
// which begins at 4096 since Linux 5.4 and at 128 before.
const backlog = 4096

type socket struct {
	name string
	kind int
	at   netip.AddrPort
}

// sockets stand in the order of the Socket constants.
func sockets() []socket {
	own4, own6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	name4 := netip.AddrFrom4([4]byte{127, 0, 0, 53}) // all of 127/8 is on lo (RFC 1122 section 3.2.1.3)
	family := func(own, name netip.Addr) []socket {
		return []socket{
			{"proxy", unix.SOCK_STREAM, netip.AddrPortFrom(own, ProxyPort)},
			{"transparent", unix.SOCK_STREAM, netip.AddrPortFrom(own, TransparentPort)},
			{"names-udp", unix.SOCK_DGRAM, netip.AddrPortFrom(name, NamePort)},
			{"names-tcp", unix.SOCK_STREAM, netip.AddrPortFrom(name, NamePort)},
		}
	}
	return append(family(own4, name4), family(own6, own6)...)
}

// Listen makes the sockets that the proxy serves, in the order of the Socket constants: four, or eight with IPv6. They
// belong to the namespace of the calling thread wherever they are served. The caller closes them; after an error there is
// nothing to close.
//
// No socket may share its address with one of a program inside: neither SO_REUSEADDR nor SO_REUSEPORT is set.
func Listen(ipv6 bool) ([]*os.File, error) {
	wanted := sockets()
	if !ipv6 {
		wanted = wanted[:SocketProxy6]
	}
	var files []*os.File
	for _, s := range wanted {
		fd, err := s.open()
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), s.name+" "+s.at.String()))
	}
	return files, nil
}

func (s socket) open() (int, error) {
	step := func(call string, err error) error {
		return &StepError{fmt.Sprintf("%s for the socket %s %s", call, s.name, s.at), err}
	}
	fd, err := unix.Socket(int(familyOf(s.at.Addr())), s.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, step("socket", err)
	}
	if call, err := s.bind(fd); err != nil {
		unix.Close(fd)
		return -1, step(call, err)
	}
	return fd, nil
}

func (s socket) bind(fd int) (call string, err error) {
	var to unix.Sockaddr
	if a := s.at.Addr(); a.Is4() {
		to = &unix.SockaddrInet4{Port: int(s.at.Port()), Addr: a.As4()}
	} else {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return "setsockopt IPV6_V6ONLY", err
		}
		to = &unix.SockaddrInet6{Port: int(s.at.Port()), Addr: a.As16()}
	}
	if err := unix.Bind(fd, to); err != nil {
		return "bind", err
	}
	if s.kind == unix.SOCK_STREAM {
		return "listen", unix.Listen(fd, backlog)
	}
	return "", nil
}
