package probe

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Addresses for documentation (RFC 5737, RFC 3849): no host has them. 203.0.113.0/24 and not
// 192.0.2.0/24, which some hypervisors use for the link to their guests.
var (
	outside4 = netip.AddrFrom4([4]byte{203, 0, 113, 1})
	outside6 = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
)

// unlisted returns an address of the outside that no rule consists of: connections to those are led to the proxy.
func unlisted(a netip.Addr, literals []string) netip.Addr {
	for slices.Contains(literals, a.String()) {
		a = a.Next()
	}
	return a
}

func inet4(a netip.Addr, port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
}

func inet6(a netip.Addr, port int) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Port: port, Addr: a.As16()} // an IPv4 address becomes a mapped one
}

// highBits is set in an argument that the kernel reads as int: a filter that compares all 64 bits
// does not recognise the value.
const highBits = 1 << 32

func egress(s Setup) []attempt {
	out4, out6 := unlisted(outside4, s.Spec.Literals), unlisted(outside6, s.Spec.Literals)
	to := func(name string, family, kind, proto int, sa unix.Sockaddr) attempt {
		return attempt{name: name, wall: enforce.NetEgress, run: func(b *battery) result { return b.send(family, kind, proto, sa) }}
	}
	socket := func(name string, family, kind, proto uintptr) attempt {
		return attempt{name: name, wall: enforce.NetEgress, run: func(*battery) result { return makeSocket(family, kind, proto) }}
	}
	return []attempt{
		to("tcp4", unix.AF_INET, unix.SOCK_STREAM, 0, inet4(out4, 80)),
		to("tcp6", unix.AF_INET6, unix.SOCK_STREAM, 0, inet6(out6, 80)),
		to("tcp6-mapped", unix.AF_INET6, unix.SOCK_STREAM, 0, inet6(out4, 80)),
		to("tcp-dns", unix.AF_INET, unix.SOCK_STREAM, 0, inet4(out4, 53)),
		to("udp4", unix.AF_INET, unix.SOCK_DGRAM, 0, inet4(out4, 80)),
		to("udp6", unix.AF_INET6, unix.SOCK_DGRAM, 0, inet6(out6, 80)),
		to("udp-dns", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP, inet4(out4, 53)),
		socket("mptcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), // Landlock's TCP rights do not see it
		socket("mptcp-high-bits", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP|highBits),
		socket("sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		socket("dccp", unix.AF_INET, 6, 33),
		socket("icmp", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		socket("icmp6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6),
		socket("raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW),
		socket("packet", unix.AF_PACKET, unix.SOCK_RAW, 0),
		socket("packet-high-bits", unix.AF_PACKET|highBits, unix.SOCK_DGRAM, 0),
		socket("xdp", unix.AF_XDP, unix.SOCK_RAW, 0),
		// A connection that starts with data passes neither connect(2) nor what watches it.
		{name: "fastopen-sendto", wall: enforce.NetEgress, run: func(b *battery) result { return b.fastOpen(out4, sendto, unix.MSG_FASTOPEN) }},
		{name: "fastopen-sendmsg", wall: enforce.NetEgress, run: func(b *battery) result { return b.fastOpen(out4, sendmsg, unix.MSG_FASTOPEN) }},
		{name: "fastopen-high-bits", wall: enforce.NetEgress, run: func(b *battery) result { return b.fastOpen(out4, sendto, unix.MSG_FASTOPEN|highBits) }},
		{name: "fastopen-connect", wall: enforce.NetEgress, run: func(b *battery) result { return b.fastOpenConnect(out4) }},
		{name: "namespace", wall: enforce.NetEgress, only: enforce.Native,
			run: func(b *battery) result { return judgeOwn("/proc/self/ns/net", b.Targets.HostNetNS) }},
		{name: "interfaces", wall: enforce.NetEgress, only: enforce.Native, run: foreignInterfaces},
		{name: "routes", wall: enforce.NetEgress, only: enforce.Native, run: foreignRoutes},
	}
}

// makeSocket makes a socket that no cell needs.
func makeSocket(family, kind, proto uintptr) result {
	fd, _, errno := unix.Syscall(unix.SYS_SOCKET, family, kind|unix.SOCK_CLOEXEC, proto)
	if errno != 0 {
		return judge(errno, refusedSocket, nil)
	}
	unix.Close(int(fd))
	return judge(nil, nil, nil)
}

// inet makes a socket of a family that a cell may use.
func inet(family, kind, proto int) (int, error) {
	return unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
}

// send connects a stream, or sends one empty datagram. EINPROGRESS means that a packet left.
func (b *battery) send(family, kind, proto int, sa unix.Sockaddr) result {
	fd, err := inet(family, kind, proto)
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	if kind == unix.SOCK_STREAM {
		err = unix.Connect(fd, sa)
	} else {
		err = unix.Sendto(fd, nil, 0, sa)
	}
	return judge(err, b.unreachable(), past)
}

// past are answers of a network stack that took the packet.
var past = errnos{unix.EINPROGRESS, unix.EAGAIN, unix.ETIMEDOUT, unix.EHOSTUNREACH}

// noSocket is how making an ordinary socket may fail: without IPv6, and in bare, where the filter
// refuses UDP altogether, and TCP below Landlock ABI 4.
func (b *battery) noSocket() errnos {
	if b.half == enforce.Second {
		return errnos{unix.EPERM} // the program on the control group refuses the socket
	}
	if b.Backend == enforce.Bare {
		return refusedSocket
	}
	return append(b.programs(), unix.EAFNOSUPPORT)
}

type sender func(fd int, sa *unix.RawSockaddrInet4, flags uintptr) unix.Errno

func sendto(fd int, sa *unix.RawSockaddrInet4, flags uintptr) unix.Errno {
	data := [1]byte{'x'}
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&data)), 1, flags,
		uintptr(unsafe.Pointer(sa)), unix.SizeofSockaddrInet4)
	return errno
}

func sendmsg(fd int, sa *unix.RawSockaddrInet4, flags uintptr) unix.Errno {
	data := [1]byte{'x'}
	vec := unix.Iovec{Base: &data[0]}
	vec.SetLen(1)
	msg := unix.Msghdr{Name: (*byte)(unsafe.Pointer(sa)), Namelen: unix.SizeofSockaddrInet4, Iov: &vec}
	msg.SetIovlen(1)
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), flags)
	return errno
}

func (b *battery) fastOpen(to netip.Addr, send sender, flags uintptr) result {
	fd, err := inet(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	sa := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: htons(80), Addr: to.As4()}
	errno := send(fd, &sa, flags)
	if errno == 0 {
		return judge(nil, nil, nil)
	}
	// EOPNOTSUPP: the filter, or a kernel with the sysctl tcp_fastopen off; nothing left in either.
	return judge(errno, append(b.unreachable(), unix.EOPNOTSUPP, unix.EPERM), past)
}

func htons(port uint16) uint16 {
	b := [2]byte{byte(port >> 8), byte(port)}
	return *(*uint16)(unsafe.Pointer(&b))
}

func (b *battery) fastOpenConnect(to netip.Addr) result {
	fd, err := inet(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
		return judge(err, errnos{unix.ENOPROTOOPT, unix.EPERM, unix.EOPNOTSUPP}, nil)
	}
	return judge(unix.Connect(fd, inet4(to, 80)), b.unreachable(), past)
}

// foreignInterfaces looks for an interface that is up and not the loopback. Fallback tunnels
// (tunl0, sit0, …) appear in every namespace, down, and only CAP_NET_ADMIN brings one up.
func foreignInterfaces(*battery) result {
	names, err := interfaces()
	if err != nil {
		return unclear(err.Error())
	}
	fd, err := inet(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return unclear("socket: " + errnoName(err))
	}
	defer unix.Close(fd)
	for _, name := range names {
		req, err := unix.NewIfreq(name)
		if err == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req)
		}
		if err != nil {
			return unclear(name + ": " + errnoName(err))
		}
		if f := req.Uint16(); f&unix.IFF_UP != 0 && f&unix.IFF_LOOPBACK == 0 {
			return leaked("the interface " + name + " is up")
		}
	}
	return stopped(strings.Join(names, " "))
}

func interfaces() ([]string, error) {
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, line := range strings.Split(string(data), "\n") {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no interface in /proc/self/net/dev")
	}
	return names, nil
}

func foreignRoutes(*battery) result {
	data, err := os.ReadFile("/proc/self/net/route")
	if err != nil {
		return unclear(err.Error())
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for _, line := range lines[1:] { // the first line names the columns
		if name, _, _ := strings.Cut(line, "\t"); name != "lo" {
			return leaked("there is a route through " + name)
		}
	}
	return stopped("no route leaves the loopback")
}
