package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// streams connect to literals, of the outside and of the host, and say the marker.
func streams() []attempt {
	to := func(name, where string) attempt {
		return attempt{"tcp-" + name, func(t *target, mark string) error { return stream(t.Net[where], mark) }}
	}
	return []attempt{
		to("far4", "far4"), to("far6", "far6"), to("mapped", "mapped"), to("denied", "denied4"), to("metadata", "metadata"), to("dot", "dot"),
		to("host4", "host4"), to("host6", "host6"), to("loopback4", "loopback4"), to("loopback6", "loopback6"),
		to("loopback-second", "loopback-second"), to("any4", "any4"), to("any6", "any6"),
		{"tcp-without-proxy-variables", func(t *target, mark string) error {
			for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"} {
				os.Unsetenv(name)
			}
			return stream(t.Net["far4"], mark)
		}},
		{"tcp-static-program", func(t *target, mark string) error { return byCopy(t, mark) }},
	}
}

// byCopy runs a copy of this program, which is linked statically: no library in between sees what it does.
func byCopy(t *target, mark string) error {
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	file := t.Dir + "/static"
	if err := os.WriteFile(file, data, 0o755); err != nil {
		return err
	}
	return runProgram(file, "-udp", t.Net["udp-far4"], mark)
}

// datagrams go to literals.
func datagrams() []attempt {
	to := func(name, where string) attempt {
		return attempt{"udp-" + name, func(t *target, mark string) error { return sendTo(t.Net[where], []byte(mark)) }}
	}
	return []attempt{
		to("far4", "udp-far4"), to("far6", "udp-far6"), to("mapped", "udp-mapped"), to("metadata", "metadata"), to("loopback4", "udp-loopback4"),
		to("loopback6", "udp-loopback6"), to("host4", "udp-host4"),
		{"udp-quic", func(t *target, mark string) error {
			// The long header of an Initial packet (RFC 9000 section 17.2.2); its connection ids are free.
			packet := append([]byte{0xc3, 0, 0, 0, 1, 20}, mark[:20]...)
			packet = append(packet, 5)
			packet = append(packet, mark[20:]...)
			packet = append(packet, mark...)
			return sendTo(t.Net["quic"], append(packet, make([]byte, 1200-len(packet))...))
		}},
		{"udp-connected", func(t *target, mark string) error {
			fd, to, err := open(t.Net["udp-far4"], unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Connect(fd, to); err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte(mark))
			return err
		}},
		{"udp-sendmsg", func(t *target, mark string) error {
			fd, to, err := open(t.Net["udp-far4"], unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendmsg(fd, []byte(mark), nil, to, 0)
		}},
		{"udp-sendmmsg", func(t *target, mark string) error { return sendmmsg(t.Net["udp-far4"], mark) }},
	}
}

// wideAddresses hide an address in another one, or lie in ranges that few lists know.
func wideAddresses() []attempt {
	var all []attempt
	for _, a := range [][2]string{
		{"nat64", "64:ff9b::cb00:7109"}, {"nat64-local", "64:ff9b:1::cb00:7109"}, {"6to4", "2002:cb00:7109::1"}, {"teredo", "2001:0:cb00:7109::1"},
		{"compatible", "::203.0.113.9"}, {"site-local", "fec0::1"}, {"unique-local", "fd00:ec2::254"}, {"private", "10.0.0.9"}, {"cgnat", "100.64.0.9"},
		{"reserved", "240.0.0.9"}, {"zero-net", "0.1.2.3"}, {"benchmark", "198.18.255.9"}, {"any4", "0.0.0.0"}, {"any6", "::"},
	} {
		all = append(all, attempt{"udp-" + a[0], func(_ *target, mark string) error {
			return sendTo(netip.AddrPortFrom(netip.MustParseAddr(a[1]), 9).String(), []byte(mark))
		}})
	}
	return all
}

// multicasts speak to everybody who is near.
func multicasts() []attempt {
	to := func(name, address string) attempt {
		return attempt{name, func(_ *target, mark string) error { return sendTo(address, []byte(mark)) }}
	}
	all := []attempt{
		to("multicast-mdns", "224.0.0.251:5353"), to("multicast-llmnr", "224.0.0.252:5355"), to("multicast-ssdp", "239.255.255.250:1900"),
		to("broadcast", "255.255.255.255:9"), to("broadcast-netbios", "203.0.113.255:137"),
	}
	for _, a := range [][2]string{{"multicast6-mdns", "ff02::fb"}, {"multicast6-all", "ff02::1"}, {"link-local6", "fe80::9"}} {
		all = append(all, attempt{a[0], func(_ *target, mark string) error {
			return eachInterface(func(index int, _ string) error {
				return sendTo(fmt.Sprintf("[%s%%%d]:5353", a[1], index), []byte(mark))
			})
		}})
	}
	return append(all, attempt{"multicast-interface", func(_ *target, mark string) error {
		return eachInterface(func(index int, _ string) error {
			fd, to, err := open("239.1.2.3:9", unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)}); err != nil {
				return err
			}
			return unix.Sendto(fd, []byte(mark), 0, to)
		})
	}})
}

// eachInterface tries all interfaces of this namespace, from the last on: lo is the first.
func eachInterface(f func(index int, name string) error) error {
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return err
	}
	errs := []error{errors.New("no interface but lo")}
	for line := range strings.Lines(string(data)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name == "lo" {
			continue
		}
		index, err := interfaceIndex(name)
		if err == nil {
			err = f(index, name)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return errors.Join(errs...)
}

func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int(req.Uint32()), nil
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
	if zone := ap.Addr().Zone(); zone != "" {
		if _, err := fmt.Sscan(zone, &to.ZoneId); err != nil {
			return nil, 0, err
		}
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
	wait := unix.Timeval{Sec: 1}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, to, nil
}

// stream connects and says the marker.
func stream(address, mark string) error { return streamBy(address, 0, nil, mark) }

// streamBy is stream with another protocol, and with something done to the socket before.
func streamBy(address string, protocol int, prepare func(fd int) error, mark string) error {
	fd, to, err := open(address, unix.SOCK_STREAM, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if prepare != nil {
		if err := prepare(fd); err != nil {
			return err
		}
	}
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(mark))
	return err
}

// sendTo sends one datagram.
func sendTo(address string, data []byte) error { return sendBy(address, nil, data) }

// sendBy is sendTo with something done to the socket before.
func sendBy(address string, prepare func(fd int) error, data []byte) error {
	fd, to, err := open(address, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if prepare != nil {
		if err := prepare(fd); err != nil {
			return err
		}
	}
	return unix.Sendto(fd, data, 0, to)
}
