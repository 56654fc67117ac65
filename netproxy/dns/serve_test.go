package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

// start serves on loopback and returns the two addresses.
func start(t *testing.T, r *Resolver) (udp, tcp string) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, []net.PacketConn{p}, []net.Listener{l}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if _, err := p.WriteTo([]byte("x"), p.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the UDP socket is open: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the TCP listener is open: %v", err)
		}
		goleak.VerifyNone(t, leaks)
	})
	return p.LocalAddr().String(), l.Addr().String()
}

func TestServe(t *testing.T) {
	r, _ := resolver(t, "github.com")
	udp, tcp := start(t, r)
	for network, address := range map[string]string{"udp": udp, "tcp": tcp} {
		c := &dns.Client{Net: network}
		back, _, err := c.Exchange(question("github.com", dns.TypeA), address)
		if err != nil || values(back) != "198.18.0.2" {
			t.Errorf("%s: %v %v", network, back, err)
		}
		back, _, err = c.Exchange(question("evil.example", dns.TypeA), address)
		if err != nil || back.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v %v", network, back, err)
		}
	}
}

// Go's own resolver, with a search list as it comes from a machine's configuration.
func TestNetResolver(t *testing.T) {
	r, _ := resolver(t, "github.com")
	udp, tcp := start(t, r)
	client := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if strings.HasPrefix(network, "udp") {
			return (&net.Dialer{}).DialContext(ctx, "udp", udp)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", tcp)
	}}
	got, err := client.LookupHost(t.Context(), "github.com")
	slices.Sort(got)
	if err != nil || strings.Join(got, " ") != "198.18.0.2 fdc0:c0c0:c0c0::2" {
		t.Errorf("%v %v", got, err)
	}
	var missing *net.DNSError
	if got, err := client.LookupHost(t.Context(), "evil.example"); !errors.As(err, &missing) || !missing.IsNotFound || missing.IsTemporary {
		t.Errorf("%v %v, want not found at once", got, err)
	}
	if got, err := client.LookupAddr(t.Context(), "198.18.0.2"); err != nil || len(got) != 1 || got[0] != "github.com." {
		t.Errorf("%v %v", got, err)
	}
	if got, err := client.LookupTXT(t.Context(), "github.com"); err == nil {
		t.Errorf("texts %v", got)
	}
}

func TestPipeline(t *testing.T) {
	r, _ := resolver(t, "github.com")
	_, tcp := start(t, r)
	c, err := net.Dial("tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var stream []byte
	for i := range 20 {
		m := question("github.com", dns.TypeA)
		m.Id = uint16(i)
		data := packed(t, m)
		stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(data))), data...)
	}
	for _, b := range stream { // in the smallest pieces
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, data); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint16(data); int(got) != i {
			t.Errorf("reply %d has the id %d", i, got)
		}
	}
}

// A stream that is none is closed, and the resolver goes on.
func TestHostileStream(t *testing.T) {
	r, _ := resolver(t, "github.com")
	_, tcp := start(t, r)
	for name, data := range map[string][]byte{
		"no length": {}, "half a length": {0}, "zero": {0, 0}, "too long": {255, 255, 0}, "short": {0, 3, 1, 2, 3},
		"an answer": {0, 12, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "HTTP": []byte("GET / HTTP/1.1\r\nHost: github.com\r\n\r\n"), "cut": {0, 40, 1, 2},
	} {
		c, err := net.Dial("tcp", tcp)
		if err != nil {
			t.Fatal(err)
		}
		// The other end may be gone by then; a reset is how the kernel closes where unread bytes are left.
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
		if got, _ := io.ReadAll(c); len(got) != 0 {
			t.Errorf("%s: %x", name, got)
		}
		c.Close()
	}
	back, _, err := (&dns.Client{Net: "tcp"}).Exchange(question("github.com", dns.TypeA), tcp)
	if err != nil || values(back) != "198.18.0.2" {
		t.Errorf("afterwards: %v %v", back, err)
	}
}

func TestHostileDatagrams(t *testing.T) {
	r, _ := resolver(t, "github.com")
	udp, _ := start(t, r)
	c, err := net.Dial("udp", udp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, data := range [][]byte{{}, {0}, make([]byte, 11), make([]byte, 4097), make([]byte, 60000), append([]byte{0, 0, 0x80}, make([]byte, 30)...)} {
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	back, _, err := (&dns.Client{}).ExchangeWithConn(question("github.com", dns.TypeA), &dns.Conn{Conn: c})
	if err != nil || values(back) != "198.18.0.2" {
		t.Errorf("afterwards: %v %v", back, err)
	}
}

// More streams than are served at once: the open ones do not keep the others from being answered once they end.
func TestManyStreams(t *testing.T) {
	r, _ := resolver(t, "github.com")
	udp, tcp := start(t, r)
	var idle []net.Conn
	for range streams {
		c, err := net.Dial("tcp", tcp)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	if back, _, err := (&dns.Client{}).Exchange(question("github.com", dns.TypeA), udp); err != nil || values(back) != "198.18.0.2" {
		t.Errorf("UDP meanwhile: %v %v", back, err)
	}
	for _, c := range idle {
		c.Close()
	}
	var all sync.WaitGroup
	for range 2 * streams {
		all.Go(func() {
			back, _, err := (&dns.Client{Net: "tcp", Timeout: time.Minute}).Exchange(question("github.com", dns.TypeA), tcp)
			if err != nil || values(back) != "198.18.0.2" {
				t.Errorf("%v %v", back, err)
			}
		})
	}
	all.Wait()
}

// A socket that fails ends the resolver with the reason, and takes the others along.
func TestFailure(t *testing.T) {
	r, _ := resolver(t)
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	leaks := goleak.IgnoreCurrent()
	if err := r.Serve(t.Context(), []net.PacketConn{p}, []net.Listener{l}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want that a socket is closed", err)
	}
	if _, err := p.WriteTo([]byte("x"), p.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the UDP socket is open: %v", err)
	}
	goleak.VerifyNone(t, leaks)
}
