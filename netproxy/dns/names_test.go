package dns

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"coworker/netproxy/hostmatch"
)

func host(t testing.TB, s string) hostmatch.Host {
	t.Helper()
	h, err := hostmatch.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestNames(t *testing.T) {
	n := NewNames()
	for i, want := range []string{"198.18.0.2 fdc0:c0c0:c0c0::2", "198.18.0.3 fdc0:c0c0:c0c0::3"} {
		v4, v6, ok := n.For(host(t, fmt.Sprintf("n%d.example", i)))
		if got := v4.String() + " " + v6.String(); !ok || got != want {
			t.Errorf("name %d: %s %v, want %s", i, got, ok, want)
		}
	}
	literal, err := hostmatch.FromAddr(netip.MustParseAddr("203.0.113.7"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []hostmatch.Host{{}, literal} {
		if v4, v6, ok := n.For(h); ok || v4.IsValid() || v6.IsValid() {
			t.Errorf("%q gets %s %s", h, v4, v6)
		}
	}
	for _, s := range []string{"198.18.0.0", "198.18.0.1", "198.18.0.4", "198.19.255.255", "198.17.0.2", "127.0.0.1", "::2", "fdc0:c0c0:c0c0::", "fdc0:c0c0:c0c0::1", "fdc0:c0c0:c0c0::4",
		"fdc0:c0c0:c0c0:1::2", "fdc0:c0c0:c0c0:0:1::2", "fdc0:c0c0:c0c0:0:ffff:ffff:ffff:ffff", "fdc0:c0c0:c0c0::2%lo", "fdc0:c0c0:c0c0:0:8000::2"} {
		if h, ok := n.Host(netip.MustParseAddr(s)); ok || !h.IsZero() {
			t.Errorf("%s stands for %q", s, h)
		}
	}
	if h, ok := n.Host(netip.MustParseAddr("::ffff:198.18.0.2")); !ok || h.Name() != "n0.example" {
		t.Errorf("mapped: %q %v", h, ok)
	}
	if _, ok := n.Host(netip.Addr{}); ok {
		t.Error("no address stands for a name")
	}
}

func TestIsSynthetic(t *testing.T) {
	for s, want := range map[string]bool{
		"198.18.0.0": true, "198.19.255.255": true, "::ffff:198.18.0.5": true, "fdc0:c0c0:c0c0::": true, "fdc0:c0c0:c0c0:0:ffff::1": true, "fdc0:c0c0:c0c0::1%eth0": true,
		"198.17.255.255": false, "198.20.0.0": false, "fdc0:c0c0:c0c0:1::": false, "fdc0:c0c0:c0bf::": false, "127.0.0.1": false, "::1": false,
	} {
		if got := IsSynthetic(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	if IsSynthetic(netip.Addr{}) {
		t.Error("no address is synthetic")
	}
}

// A full table gives nothing to new names and goes on to serve the old ones.
func TestExhaustion(t *testing.T) {
	n := NewNames()
	for i := range MaxNames {
		v4, v6, ok := n.For(host(t, fmt.Sprintf("n%d.example", i)))
		if !ok || !IsSynthetic(v4) || !IsSynthetic(v6) {
			t.Fatalf("name %d: %s %s %v", i, v4, v6, ok)
		}
	}
	if v4, v6, ok := n.For(host(t, "one-more.example")); ok || v4.IsValid() || v6.IsValid() {
		t.Errorf("one more gets %s %s", v4, v6)
	}
	if v4, _, ok := n.For(host(t, "n7.example")); !ok || v4 != netip.MustParseAddr("198.18.0.9") {
		t.Errorf("an old name: %s %v", v4, ok)
	}
	v4, v6 := synthetic(MaxNames)
	for _, a := range []netip.Addr{v4, v6} {
		if h, ok := n.Host(a); ok {
			t.Errorf("%s stands for %s", a, h)
		}
	}
}

// A name never changes its address, two names never share one, and an address leads back to its name, whatever the order.
func TestStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNames(rapid.IntRange(0, 20).Draw(t, "max"))
		given, owner := map[hostmatch.Host][2]netip.Addr{}, map[netip.Addr]hostmatch.Host{}
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			h, err := hostmatch.ParseName(fmt.Sprintf("n%d.example", rapid.IntRange(0, 30).Draw(t, "name")))
			if err != nil {
				t.Fatal(err)
			}
			v4, v6, ok := n.For(h)
			before, known := given[h]
			if known && (!ok || before != [2]netip.Addr{v4, v6}) {
				t.Fatalf("%s had %s and has %s %s %v", h, before, v4, v6, ok)
			}
			if !ok {
				continue
			}
			given[h] = [2]netip.Addr{v4, v6}
			for _, a := range given[h] {
				if o, used := owner[a]; used && o != h {
					t.Fatalf("%s belongs to %s and %s", a, o, h)
				}
				owner[a] = h
				if back, ok := n.Host(a); !ok || back != h {
					t.Fatalf("%s leads to %q %v, want %s", a, back, ok, h)
				}
			}
		}
	})
}

func TestNamesAtOnce(t *testing.T) {
	n := newNames(50)
	var all sync.WaitGroup
	got := make([][100]netip.Addr, 8)
	for g := range got {
		all.Go(func() {
			for i := range 100 {
				got[g][i], _, _ = n.For(host(t, fmt.Sprintf("n%d.example", (i*7+g*13)%100)))
			}
		})
	}
	all.Wait()
	seen := map[netip.Addr]string{}
	for i := range 100 {
		h := host(t, fmt.Sprintf("n%d.example", i))
		if v4, _, ok := n.For(h); ok {
			if other, used := seen[v4]; used {
				t.Errorf("%s and %s share %s", h, other, v4)
			}
			seen[v4] = h.Name()
		}
	}
	if len(seen) != 50 {
		t.Errorf("%d names have addresses, want 50", len(seen))
	}
	for g := range got {
		for i, a := range got[g] {
			if want := fmt.Sprintf("n%d.example", (i*7+g*13)%100); a.IsValid() && seen[a] != want {
				t.Errorf("%s was given to %s and belongs to %s", a, want, seen[a])
			}
		}
	}
}

func TestReverse(t *testing.T) {
	for _, s := range []string{"198.18.0.2", "127.0.0.1", "0.0.0.255", "fdc0:c0c0:c0c0::2", "::1", "2001:db8::abcd"} {
		arpa, err := dns.ReverseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := reverse(arpa[:len(arpa)-1]); !ok || a != netip.MustParseAddr(s) {
			t.Errorf("%s: %s %v", arpa, a, ok)
		}
	}
	for _, s := range []string{"", "in-addr.arpa", ".in-addr.arpa", "1.2.3.in-addr.arpa", "1.2.3.4.5.in-addr.arpa", "256.0.0.1.in-addr.arpa", "01.0.0.1.in-addr.arpa", "+1.0.0.1.in-addr.arpa",
		"a.0.0.1.in-addr.arpa", "1..0.1.in-addr.arpa", "1.ip6.arpa", ".ip6.arpa", "1.0.0.127.example"} {
		if a, ok := reverse(s); ok {
			t.Errorf("%q: %s", s, a)
		}
	}
}
