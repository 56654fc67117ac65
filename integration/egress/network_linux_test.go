package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/integration/netns"
)

// namespaces are a host and a network behind it, joined by one cable. Nothing else leads anywhere.
type namespaces struct {
	host, far *os.File
	etc       string // folder with the host's own resolv.conf and hosts
}

const resolver = "203.0.113.53"

// hostLines and farLines set up the two ends; the cable is made in the far one, whose descriptor number is given.
var (
	hostLines = []string{
		"link set lo up", "address add 127.0.0.2/8 dev lo", "link set near up", "address add 203.0.113.1/24 dev near",
		"-6 address add 2001:db8::1/64 dev near nodad", "route add default via 203.0.113.9 dev near", "-6 route add default via 2001:db8::9 dev near",
	}
	farLines = []string{
		"link set lo up", "link set far up", "address add 203.0.113.9/24 dev far", "-6 address add 2001:db8::9/64 dev far nodad", "-6 address add fe80::9/64 dev far nodad",
		"address add 203.0.113.10/24 dev far", "address add 203.0.113.11/24 dev far", "address add 203.0.113.12/24 dev far", "address add 203.0.113.14/24 dev far",
		"address add 203.0.113.15/24 dev far", "address add 203.0.113.16/24 dev far", "address add 203.0.113.17/24 dev far",
		"address add " + resolver + "/24 dev far", "address add 198.51.100.9/32 dev far", "address add 169.254.169.254/32 dev far",
		"address add 8.8.8.8/32 dev far", "address add 10.0.0.9/32 dev far", "-6 address add 2001:4860:4860::8888/128 dev far nodad",
	}
)

// newNamespaces makes them. It needs root: there is no other way to look at frames.
func newNamespaces(t testing.TB) *namespaces {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and captures frames: run it as root")
	}
	n := &namespaces{etc: t.TempDir()}
	var err error
	if n.host, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.host.Close() })
	if n.far, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.far.Close() })
	cable := fmt.Sprintf("link add far type veth peer name near netns /proc/%d/fd/%d", os.Getpid(), n.host.Fd())
	err = netns.In(n.far, func() error { return netns.IP(append([]string{cable}, farLines...)...) })
	if err != nil {
		t.Fatal(err)
	}
	err = netns.In(n.host, func() error {
		if err := netns.IP(hostLines...); err != nil {
			return err
		}
		// As on most systems today, where everybody may ping (icmp(7)).
		return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"resolv.conf": "nameserver " + resolver + "\n", "hosts": "127.0.0.1 localhost\n::1 localhost\n"} {
		if err := os.WriteFile(filepath.Join(n.etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// onHost runs f as a program of the host would run: with its network, and with its name server.
func (n *namespaces) onHost(f func() error) error {
	return netns.In(n.host, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for _, name := range []string{"resolv.conf", "hosts"} {
			if err := unix.Mount(filepath.Join(n.etc, name), "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("/etc/%s: %w", name, err)
			}
		}
		return f()
	})
}
