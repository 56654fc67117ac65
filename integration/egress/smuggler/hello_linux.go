package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// hellos begin with something else in a tunnel to an allowed host than the TLS greeting of that host. The marker stands
// in the greeting, in clear.
func hellos() []attempt {
	inTunnel := func(name string, make func(mark string) ([]byte, error)) attempt {
		return attempt{"tls-" + name, func(t *target, mark string) error {
			a, err := request(t, "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n")
			if err != nil {
				return err
			}
			defer a.conn.Close()
			if err := a.wanted(); err != nil {
				return err
			}
			return greet(a.conn, make, mark)
		}}
	}
	inRedirect := func(name string, make func(mark string) ([]byte, error)) attempt {
		return attempt{"tls-redirected-" + name, func(t *target, mark string) error {
			c, err := dialName(t, "ok.test", "443")
			if err != nil {
				return err
			}
			defer c.Close()
			return greet(c, make, mark)
		}}
	}
	other := func(mark string) ([]byte, error) { return hello("denied.test", mark) }
	none := func(mark string) ([]byte, error) { return hello("", mark) }
	clear := func(mark string) ([]byte, error) { return []byte("SSH-2.0-" + mark + "\r\n"), nil }
	encrypted := func(mark string) ([]byte, error) { // encrypted_client_hello (RFC 9849), with the allowed name outside
		h, err := hello("ok.test", mark)
		if err != nil {
			return nil, err
		}
		payload := append([]byte{0, 0, 1, 0, 1, 7, 0, 1, 'k'}, binary.BigEndian.AppendUint16(nil, uint16(len(mark)))...)
		return extend(h, 0xfe0d, append(payload, mark...))
	}
	return []attempt{
		inTunnel("other-name", other), inTunnel("no-name", none), inTunnel("encrypted-hello", encrypted), inTunnel("clear-text", clear),
		inTunnel("page", func(mark string) ([]byte, error) {
			return []byte("GET /" + mark + " HTTP/1.1\r\nHost: denied.test\r\n\r\n"), nil
		}),
		inTunnel("address-name", func(mark string) ([]byte, error) {
			h, err := hello("denied.test", mark)
			return bytes.ReplaceAll(h, []byte("denied.test"), []byte("198.51.100.")), err
		}),
		inTunnel("under-name", func(mark string) ([]byte, error) { return hello(mark+".ok.test", mark) }),
		inTunnel("nul-name", func(mark string) ([]byte, error) {
			h, err := hello("ok.test.denied.test", mark)
			return bytes.ReplaceAll(h, []byte("ok.test.denied"), []byte("ok.test\x00denied")), err
		}),
		inTunnel("fragmented", func(mark string) ([]byte, error) { h, err := hello("denied.test", mark); return fragment(h), err }),
		inTunnel("alert", func(mark string) ([]byte, error) { return append([]byte{21, 3, 3, 0, byte(len(mark))}, mark...), nil }),
		inTunnel("old", func(mark string) ([]byte, error) { // the greeting of SSL 2 (RFC 6101 appendix E)
			return append([]byte{0x80, byte(9 + len(mark)), 1, 3, 1, 0, 0, 0, 0, 0, byte(len(mark))}, mark...), nil
		}),
		inTunnel("overlong", func(mark string) ([]byte, error) {
			return append([]byte{22, 3, 1, 0xff, 0xff}, bytes.Repeat([]byte(mark), 3000)...), nil
		}),
		inRedirect("other-name", other), inRedirect("no-name", none), inRedirect("encrypted-hello", encrypted), inRedirect("clear-text", clear),
	}
}

// greet says the first bytes and wants an answer of the test's servers: then they have arrived. A proxy that refuses may
// say so in the protocol.
func greet(c net.Conn, make func(mark string) ([]byte, error), mark string) error {
	data, err := make(mark)
	if err != nil {
		return err
	}
	if _, err := c.Write(data); err != nil {
		return err
	}
	answer := [1]byte{}
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer[0] != '!' {
		return fmt.Errorf("the answer begins with %#x", answer[0])
	}
	return nil
}

// hello is the first flight of crypto/tls, with the marker as a protocol name (ALPN).
func hello(name, mark string) ([]byte, error) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{mark}}
		tls.Client(far, config).Handshake() // it fails: nobody answers
	}()
	if err := near.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err := io.ReadFull(near, body)
	return append(head, body...), err
}

// extend appends an extension to a ClientHello in one record (RFC 8446 section 4.1.2).
func extend(h []byte, kind uint16, data []byte) ([]byte, error) {
	at := 5 + 4 + 2 + 32
	at += 1 + int(h[at])                           // session id
	at += 2 + int(binary.BigEndian.Uint16(h[at:])) // cipher suites
	at += 1 + int(h[at])                           // compression methods
	if at+2 > len(h) {
		return nil, errors.New("a greeting without extensions")
	}
	extra := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), uint16(len(data)))
	extra = append(extra, data...)
	grow := func(i int) { binary.BigEndian.PutUint16(h[i:], binary.BigEndian.Uint16(h[i:])+uint16(len(extra))) }
	grow(3) // the record
	grow(7) // the low bytes of the message's length
	grow(at)
	return append(h, extra...), nil
}

// fragment cuts a greeting into records of three bytes.
func fragment(h []byte) []byte {
	if len(h) < 5 {
		return nil
	}
	var out []byte
	for body := h[5:]; len(body) > 0; {
		n := min(3, len(body))
		out = append(append(out, 22, 3, 1, 0, byte(n)), body[:n]...)
		body = body[n:]
	}
	return out
}

// addressOf asks the session's resolver.
func addressOf(t *target, name string) (string, error) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, t.Names)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := (&net.Resolver{PreferGo: true, Dial: dial}).LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return "", err
	}
	return all[0].Unmap().String(), nil
}

// dialName connects to the synthetic address of a name, as a program that knows no proxy.
func dialName(t *target, name, port string) (net.Conn, error) {
	address, err := addressOf(t, name)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(address, port), patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// sayTo says the marker to the synthetic address of a name.
func sayTo(t *target, name, port, mark string) error {
	c, err := dialName(t, name, port)
	if err != nil {
		return err
	}
	defer c.Close()
	return greet(c, func(string) ([]byte, error) { return []byte(mark), nil }, mark)
}

// synthetics use the addresses that stand for names.
func synthetics() []attempt {
	port := func(name, host, number string) attempt {
		return attempt{"synthetic-" + name, func(t *target, mark string) error { return sayTo(t, host, number, mark) }}
	}
	packet := func(name, number string) attempt {
		return attempt{"synthetic-" + name, func(t *target, mark string) error {
			address, err := addressOf(t, "ok.test")
			if err != nil {
				return err
			}
			to, _, err := sockaddr(net.JoinHostPort(address, number))
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Connect(fd, to); err != nil {
				return err
			}
			if _, err := unix.Write(fd, []byte(mark)); err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte(mark)) // ICMP's refusal of the first one comes back here
			return err
		}}
	}
	rebind := func(name, host string) attempt {
		return attempt{"rebind-" + name, func(t *target, mark string) error {
			// The world's answer differs from the second question on.
			_, first := request(t, "CONNECT "+host+":7000 HTTP/1.1\r\nHost: "+host+":7000\r\n\r\n")
			second := tunnel(t, host+":7000", mark)
			if second == nil {
				second = tunnel(t, host+":7000", mark)
			}
			if second != nil {
				return fmt.Errorf("first %v, then %w", first, second)
			}
			return nil
		}}
	}
	return []attempt{
		port("other-port", "ok.test", "22"), port("http-port", "ok.test", "80"), port("other-name", "other.test", "443"),
		{"synthetic-unnamed", func(_ *target, mark string) error { return answered("198.19.255.254:443", mark) }},
		{"synthetic-unnamed6", func(_ *target, mark string) error { return answered("[fdc0:c0c0:c0c0::ffff:fffe]:443", mark) }},
		packet("udp", "9"), packet("quic", "443"),
		{"redirect-port", func(_ *target, mark string) error { return answered("127.0.0.1:3129", mark) }},
		{"redirect-port6", func(_ *target, mark string) error { return answered("[::1]:3129", mark) }},
		{"literal-other-port", func(_ *target, mark string) error { return answered("203.0.113.16:22", mark) }},
		{"literal-udp", func(_ *target, mark string) error { return sendTo("203.0.113.16:7000", []byte(mark)) }},
		{"literal-beside", func(_ *target, mark string) error { return answered("203.0.113.17:7000", mark) }},
		rebind("loopback", "rebind-loopback.test"), rebind("metadata", "rebind-metadata.test"), rebind("private", "rebind-private.test"), rebind("host", "rebind-host.test"),
	}
}

// answered says the marker and wants a byte back.
func answered(address, mark string) error {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return greet(c, func(mark string) ([]byte, error) { return []byte(mark), nil }, mark)
}
