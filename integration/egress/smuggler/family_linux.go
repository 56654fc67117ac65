package main

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// made wants a socket.
func made(name string, family, kind, protocol int) attempt {
	return attempt{name, func(*target, string) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}}
}

// families send by other protocols.
func families() []attempt {
	sends := func(name, where string, kind, protocol int, packet func(mark string) []byte) attempt {
		return attempt{name, func(t *target, mark string) error {
			fd, to, err := open(t.Net[where], kind, protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			switch a := to.(type) { // the port of a raw socket is its protocol
			case *unix.SockaddrInet4:
				a.Port = 0
			case *unix.SockaddrInet6:
				a.Port = 0
			}
			return unix.Sendto(fd, packet(mark), 0, to)
		}}
	}
	const tryout = 253 // a protocol number for experiments (RFC 3692)
	plain := func(mark string) []byte { return []byte(mark) }
	return []attempt{
		sends("ping4", "far4", unix.SOCK_DGRAM, unix.IPPROTO_ICMP, func(m string) []byte { return append([]byte{8, 7: 0}, m...) }),
		sends("ping6", "far6", unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, func(m string) []byte { return append([]byte{128, 7: 0}, m...) }),
		sends("raw4", "far4", unix.SOCK_RAW, tryout, plain),
		sends("raw6", "far6", unix.SOCK_RAW, tryout, plain),
		sends("raw-icmp", "far4", unix.SOCK_RAW, unix.IPPROTO_ICMP, func(m string) []byte { return append([]byte{8, 7: 0}, m...) }),
		sends("raw-header", "far4", unix.SOCK_RAW, unix.IPPROTO_RAW, ipPacket),
		{"packet-raw", func(_ *target, mark string) error { return packet(unix.SOCK_RAW, mark) }},
		{"packet-datagram", func(_ *target, mark string) error { return packet(unix.SOCK_DGRAM, mark) }},
		{"sctp", func(t *target, mark string) error { return streamBy(t.Net["far4"], unix.IPPROTO_SCTP, nil, mark) }},
		{"udplite", func(t *target, mark string) error {
			fd, to, err := open(t.Net["udp-far4"], unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, []byte(mark), 0, to)
		}},
		{"mptcp4", func(t *target, mark string) error { return streamBy(t.Net["far4"], unix.IPPROTO_MPTCP, nil, mark) }},
		{"mptcp6", func(t *target, mark string) error { return streamBy(t.Net["far6"], unix.IPPROTO_MPTCP, nil, mark) }},
	}
}

// otherFamilies are sockets that nothing is sent through: to have one is the way out.
func otherFamilies() []attempt {
	return []attempt{
		made("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0), made("sctp-many", unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP),
		made("dccp", unix.AF_INET, 6, 33), made("xdp", unix.AF_XDP, unix.SOCK_RAW, 0), made("alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		made("bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1), made("can", unix.AF_CAN, unix.SOCK_RAW, 1), made("tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0),
		made("rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0), made("qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0), made("smc", unix.AF_SMC, unix.SOCK_STREAM, 0),
		made("ppp", unix.AF_PPPOX, unix.SOCK_STREAM, 0), made("key", unix.AF_KEY, unix.SOCK_RAW, 2), made("ax25", unix.AF_AX25, unix.SOCK_DGRAM, 0),
		made("ieee802154", unix.AF_IEEE802154, unix.SOCK_RAW, 0), made("nfc", unix.AF_NFC, unix.SOCK_SEQPACKET, 0), made("phonet", unix.AF_PHONET, unix.SOCK_DGRAM, 0),
		{"kcm", func(*target, string) error { return makeAny(unix.AF_KCM, 41, unix.AF_LLC, unix.AF_PHONET) }},
	}
}

func makeAny(families ...int) error {
	var errs []error
	for _, family := range families {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				return unix.Close(fd)
			}
			errs = append(errs, err)
		}
	}
	return errs[len(errs)-1]
}

// ipPacket is an IPv4 packet by hand to the far address; the kernel fills in length, checksum and source (raw(7)).
func ipPacket(mark string) []byte {
	p := make([]byte, 20, 20+len(mark))
	p[0], p[8], p[9] = 0x45, 64, 253
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(mark)))
	copy(p[16:], []byte{203, 0, 113, 9})
	return append(p, mark...)
}

// packet puts a frame on every interface.
func packet(kind int, mark string) error {
	const experimental = 0x88b5 // ethertype for experiments (IEEE 802)
	fd, err := unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := []byte(mark)
	if kind == unix.SOCK_RAW {
		head := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9}
		frame = append(binary.BigEndian.AppendUint16(head, experimental), mark...)
	}
	return eachInterface(func(index int, _ string) error {
		to := &unix.SockaddrLinklayer{Protocol: experimental>>8 | experimental<<8&0xff00, Ifindex: index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
		return unix.Sendto(fd, frame, 0, to)
	})
}
