package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// socksWays speak SOCKS to the proxy.
func socksWays() []attempt {
	name := func(way, host string, port uint16) attempt {
		return attempt{"socks-" + way, func(t *target, mark string) error {
			return socks(t, 1, socksName(host+"", mark), port, mark)
		}}
	}
	literal := func(way, where string) attempt {
		return attempt{"socks-" + way, func(t *target, mark string) error {
			host, text, err := net.SplitHostPort(t.Net[where])
			if err != nil {
				return err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return err
			}
			return socks(t, 1, socksAddress(netip.MustParseAddr(host)), uint16(port), mark)
		}}
	}
	return []attempt{
		name("denied", "WORD.denied.test", 443), name("nul", "ok.test\x00.denied.test", 443), name("other-port", "ok.test", 22), name("localhost", "localhost", 80),
		name("empty", "", 443), name("number", "2130706433", 80), name("literal-name", "127.0.0.1", 80), name("bracket-name", "[::1]", 80),
		name("port-zero", "ok.test", 0), literal("literal", "denied4"), literal("loopback", "loopback4"), literal("loopback6", "loopback6"), literal("metadata", "metadata"),
		literal("host", "host4"), literal("mapped", "mapped-loopback"),
		{"socks-udp", func(t *target, mark string) error { return socks(t, 3, socksAddress(netip.IPv4Unspecified()), 0, mark) }},
		{"socks-udp-allowed", func(t *target, mark string) error { return socks(t, 3, socksName("ok.test", mark), 443, mark) }},
		{"socks-bind", func(t *target, mark string) error { return socks(t, 2, socksName("ok.test", mark), 443, mark) }},
		{"socks-resolve", func(t *target, mark string) error {
			return socks(t, 0xf0, socksName("WORD.denied.test", mark), 0, mark)
		}}, // RESOLVE of Tor
		{"socks-credentials", func(t *target, mark string) error {
			return socksRaw(t, append(append([]byte{5, 1, 2, 1, byte(len(mark))}, mark...), append([]byte{byte(len(mark))}, mark...)...), 2)
		}},
		{"socks4", func(t *target, mark string) error {
			return socksRaw(t, append(append([]byte{4, 1, 0, 80, 198, 51, 100, 9}, mark...), 0), 90)
		}},
		{"socks4-name", func(t *target, mark string) error {
			return socksRaw(t, append(append([]byte{4, 1, 1, 187, 0, 0, 0, 1}, mark...), []byte("\x00"+mark+".denied.test\x00")...), 90)
		}},
	}
}

func socksName(host, mark string) []byte {
	if len(host) > 4 && host[:4] == "WORD" {
		host = mark + host[4:]
	}
	return append([]byte{3, byte(len(host))}, host...)
}

func socksAddress(a netip.Addr) []byte {
	if a.Is4() {
		return append([]byte{1}, a.AsSlice()...)
	}
	return append([]byte{4}, a.AsSlice()...)
}

// socks asks for one thing by SOCKS5 (RFC 1928) and says the marker if it is granted.
func socks(t *target, command byte, address []byte, port uint16, mark string) error {
	c, err := dialProxy(t)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		return err
	}
	reply := make([]byte, 10)
	if _, err := io.ReadFull(c, reply[:2]); err != nil {
		return err
	}
	if _, err := c.Write(binary.BigEndian.AppendUint16(append([]byte{5, command, 0}, address...), port)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	if reply[1] != 0 {
		return fmt.Errorf("SOCKS reply %d", reply[1])
	}
	_, err = io.WriteString(c, mark)
	return err
}

// socksRaw says bytes and wants a second byte of the answer that means yes.
func socksRaw(t *target, data []byte, yes byte) error {
	c, err := dialProxy(t)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(data); err != nil {
		return err
	}
	reply := make([]byte, 2)
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	if reply[1] != yes {
		return fmt.Errorf("SOCKS reply % x", reply)
	}
	return nil
}

// servers take the places of the session's proxy, or listen beside it.
func servers() []attempt {
	take := func(name, address string, kind int) attempt {
		return attempt{"serve-" + name, func(_ *target, _ string) error {
			fd, err := shared(address, kind)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}}
	}
	return []attempt{
		take("proxy", "127.0.0.1:3128", unix.SOCK_STREAM), take("redirect", "127.0.0.1:3129", unix.SOCK_STREAM),
		take("names", "127.0.0.53:53", unix.SOCK_DGRAM), take("names-stream", "127.0.0.53:53", unix.SOCK_STREAM),
		{"serve-and-take", func(t *target, mark string) error { // the wider address, with the port shared
			fd, err := shared("0.0.0.0:3128", unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return stolen(fd, t)
		}},
		{"serve-own", func(_ *target, mark string) error { return ownServer(mark) }},
	}
}

// shared binds a socket that shares its port with everybody who lets it.
func shared(address string, kind int) (int, error) {
	to, family, err := sockaddr(address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// stolen says whether a connection to the proxy comes to another listener.
func stolen(fd int, t *target) error {
	c, err := net.DialTimeout("tcp", t.Proxy, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 200); err != nil || n == 0 {
		return errors.Join(err, errors.New("the connection went to the proxy"))
	}
	return nil
}

// ownServer is honest work: a server and a client inside.
func ownServer(mark string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.WriteString(c, mark)
	return err
}
