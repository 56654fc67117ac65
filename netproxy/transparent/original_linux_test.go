package transparent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is the accepted end of a connection to a listener on network and address.
func pair(t *testing.T, network, listen, dial string) *net.TCPConn {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.Dial("tcp", net.JoinHostPort(dial, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in.(*net.TCPConn)
}

// Nobody gets the port of the proxy itself as a destination that looks reachable: a direct connection is an error, or its
// own loopback address where the host tracks connections. Redirected ones are tested in integration/redirect.
func TestDirect(t *testing.T) {
	for name, c := range map[string]*net.TCPConn{
		"IPv4":                   pair(t, "tcp4", "127.0.0.1:0", "127.0.0.1"),
		"IPv6":                   pair(t, "tcp6", "[::1]:0", "::1"),
		"mapped on IPv6 sockets": pair(t, "tcp", "[::]:0", "127.0.0.1"),
	} {
		to, err := OriginalDestination(c)
		here := unmap(c.LocalAddr().(*net.TCPAddr).AddrPort())
		if err == nil && (to != here || !to.Addr().IsLoopback()) || err != nil && !untracked(err) {
			t.Errorf("%s: %s %v, want an error or %s", name, to, err, here)
		}
	}
}

func TestClosed(t *testing.T) {
	c := pair(t, "tcp4", "127.0.0.1:0", "127.0.0.1")
	c.Close()
	if to, err := OriginalDestination(c); err == nil {
		t.Errorf("a closed connection went to %s", to)
	}
}

func TestUntracked(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENOENT: true, unix.ENOPROTOOPT: true, unix.EINVAL: false, unix.EBADF: false, unix.EPERM: false, net.ErrClosed: false,
	} {
		if got := untracked(errors.Join(nil, fmt.Errorf("getsockopt: %w", err))); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestUnmap(t *testing.T) {
	if got := unmap(netip.MustParseAddrPort("[::ffff:198.18.0.5]:80")); got != netip.MustParseAddrPort("198.18.0.5:80") {
		t.Errorf("mapped: %s", got)
	}
}
