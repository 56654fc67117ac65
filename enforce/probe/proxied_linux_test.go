package probe

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coworker/enforce"
)

// TestProxied runs the whole battery beside a proxy: what it asks of the proxy is as it should be, and a second proxy
// that says nothing fails in bounded time.
func TestProxied(t *testing.T) {
	for _, silent := range []bool{false, true} {
		h := newHost(t)
		f := newFakeProxy()
		f.silent = silent
		f.start(t)
		h.setup.Targets.Egress = &f.Egress
		begun := time.Now()
		probes := h.run(t, 4243)
		for name, want := range wants(f) {
			p, ok := probes[string(enforce.NetEgress)+"/"+name]
			if !ok {
				p, ok = probes[string(enforce.NetLocal)+"/"+name]
			}
			refusedByKernel := silent && name == "redirect-unnamed" // no proxy is asked: nobody listens there
			if !ok || p.Want != want || p.OK() == silent && !refusedByKernel {
				t.Errorf("silent %v: %s: %+v", silent, name, p)
			}
		}
		if took := time.Since(begun); took > 10*talkTime {
			t.Errorf("silent %v: the battery took %v", silent, took)
		}
	}
}

// TestFaultyProxy breaks one thing of the proxy at a time and wants exactly the conversations that show it to fail.
func TestFaultyProxy(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	redirects := []string{"redirect", "redirect6"}
	works := append([]string{"proxy-connect", "proxy-connect6", "proxy-socks"}, redirects...)
	allDNS := []string{"dns-allowed", "dns-allowed6", "dns-tcp", "dns-denied", "dns-other-type", "redirect", "redirect6", "redirect-udp", "redirect-unnamed6"}
	for _, tc := range []struct {
		name  string
		fault func(*fakeProxy)
		fails []string
	}{
		{"none", func(*fakeProxy) {}, nil},
		{"wrong token", func(f *fakeProxy) { f.says = "token-of-another" }, works},
		{"token and more", func(f *fakeProxy) { f.says += "x" }, works},
		{"no token", func(f *fakeProxy) { f.says = "" }, works},
		{"long answer", func(f *fakeProxy) { f.says = strings.Repeat(f.says, 1000) }, works},
		{"denies nothing", func(f *fakeProxy) { f.denies = false }, []string{"proxy-denied", "proxy-other-port", "proxy-socks-denied", "proxy-loopback"}},
		{"refusal with the token", func(f *fakeProxy) { f.refusal = f.Token }, []string{"proxy-denied", "proxy-other-port", "proxy-loopback"}},
		{"public address", func(f *fakeProxy) { f.address4 = []byte{198, 51, 100, 7} }, []string{"dns-allowed", "dns-tcp", "redirect", "redirect-udp"}},
		{"public address 6", func(f *fakeProxy) { f.address6 = net.ParseIP("2001:db8::7") }, []string{"dns-allowed6", "redirect6", "redirect-unnamed6"}},
		{"other synthetic address", func(f *fakeProxy) { f.address4 = []byte{198, 19, 0, 9} }, []string{"redirect"}},
		{"every name resolves", func(f *fakeProxy) { f.resolve = true }, []string{"dns-denied"}},
		{"text", func(f *fakeProxy) { f.text = true }, []string{"dns-other-type"}},
		{"other id", func(f *fakeProxy) { f.echoID = false }, allDNS},
		{"garbage", func(f *fakeProxy) { f.garbage = true },
			append([]string{"proxy-connect", "proxy-connect6", "proxy-socks", "proxy-denied", "proxy-other-port", "proxy-socks-denied", "proxy-loopback",
				"redirect-direct"}, allDNS...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ownNetwork(t)
			f := newFakeProxy()
			tc.fault(f)
			f.start(t)
			wantConversations(t, f, tc.fails)
		})
	}
}

// wantConversations holds all conversations on the thread of the test, which alone is in its namespace.
func wantConversations(t *testing.T, f *fakeProxy, fails []string) {
	t.Helper()
	seen := map[string]bool{}
	results := converse(f.Egress, 1)
	for i, c := range conversations(f.Egress, 1, found{}) {
		seen[c.name] = true
		r := results[i]
		if r.detail == "" || strings.Contains(r.detail, f.Token) || strings.Contains(r.detail, f.AllowedName) {
			t.Errorf("%s: the detail %q is empty or holds what differs between sessions", c.name, r.detail)
		}
		if want := slices.Contains(fails, c.name); want == (r.got == c.want) {
			t.Errorf("%s: %s (%s), want it to fail: %v", c.name, r.got, r.detail, want)
		}
	}
	for _, name := range fails {
		if !seen[name] {
			t.Errorf("there is no conversation %s", name)
		}
	}
}

// TestStrangersOnSyntheticAddresses wants whoever answers where nobody should to be noticed.
func TestStrangersOnSyntheticAddresses(t *testing.T) {
	ownNetwork(t)
	f := newFakeProxy()
	f.start(t)
	var strangers sync.WaitGroup
	t.Cleanup(strangers.Wait)
	l := listen(t, "tcp", "198.19.255.254:443")
	strangers.Go(func() { f.serve(&strangers, l, f.token) })
	u, err := net.ListenPacket("udp", "198.18.0.7:443")
	must(t, err)
	t.Cleanup(func() { u.Close() })
	strangers.Go(func() {
		if _, from, err := u.ReadFrom(make([]byte, 100)); err == nil {
			u.WriteTo([]byte("x"), from)
		}
	})
	wantConversations(t, f, []string{"redirect-unnamed", "redirect-udp"})
}

// TestNoProxy wants a session that should have a proxy refused when nobody is there, and when nobody said where.
func TestNoProxy(t *testing.T) {
	ownNetwork(t)
	f := newFakeProxy()
	results := converse(f.Egress, 1)
	for i, c := range conversations(f.Egress, 1, found{}) {
		// Where nobody listens, nobody takes anything either.
		if r := results[i]; r.got == c.want && !strings.HasPrefix(c.name, "redirect-") {
			t.Errorf("%s without a proxy: %s (%s)", c.name, r.got, r.detail)
		}
	}
	all := proxied(Setup{Spec: enforce.Spec{Net: enforce.NetAllowlist}})
	if len(all) != 1 || all[0].run(nil).got == all[0].want {
		t.Errorf("a session with names and no proxy in the setup has the attempts %v", all)
	}
	if all := proxied(Setup{Spec: enforce.Spec{Net: enforce.NetNone}}); len(all) != 0 {
		t.Errorf("a session without network has the attempts %v", all)
	}
}

// TestConversations says which of them are left out where.
func TestConversations(t *testing.T) {
	names := func(e Egress, canary int) []string {
		var all []string
		for _, c := range conversations(e, canary, found{}) {
			all = append(all, c.name)
		}
		slices.Sort(all)
		return all
	}
	full := newFakeProxy().Egress
	if n := names(full, 1); len(n) != 18 {
		t.Errorf("%d conversations: %v", len(n), n)
	}
	least := names(Egress{}, 0)
	if want := []string{"dns-allowed", "dns-other-type", "dns-tcp", "proxy-connect", "proxy-socks", "redirect-direct"}; !slices.Equal(least, want) {
		t.Errorf("without anything: %v, want %v", least, want)
	}
}

func TestCanaryOnTheProxyPort(t *testing.T) {
	b := battery{Setup: Setup{Backend: enforce.Native, Targets: Targets{Egress: &Egress{ProxyPort: 3128}}}}
	if r := b.loopback(2, 3128, nil); r.got != enforce.Inconclusive {
		t.Errorf("the canary on the proxy's port: %s (%s), want inconclusive", r.got, r.detail)
	}
}

// reply0 answers a question with one address.
func reply0(t testing.TB) (asked, answer []byte) {
	t.Helper()
	f := newFakeProxy()
	asked, err := question(queryID, f.AllowedName, typeA)
	if err != nil {
		t.Fatal(err)
	}
	return asked, f.answer(asked)
}

func TestParseReply(t *testing.T) {
	asked, good := reply0(t)
	r, err := parseReply(asked, good)
	if err != nil || r.code != noError || r.answers != 1 || len(r.addresses) != 1 || !bytes.Equal(r.addresses[0], []byte{198, 18, 0, 7}) {
		t.Fatalf("parseReply = %+v, %v", r, err)
	}
	change := func(at int, value byte) []byte {
		b := slices.Clone(good)
		b[at] = value
		return b
	}
	for name, data := range map[string][]byte{
		"empty": {}, "header only": good[:headerSize], "short": good[:len(good)-1], "a query": asked, "other id": change(0, 9),
		"truncated flag": change(2, good[2]|2), "other opcode": change(2, good[2]|8), "no question": change(5, 0),
		"two questions": change(5, 2), "other name": change(14, 'z'), "more answers": change(7, 2), "many answers": change(6, 1),
		"overlong": append(slices.Clone(good), make([]byte, maxReply)...), "class": change(len(good)-11, 3),
		"long value": change(len(good)-5, 200), "bad label": change(len(asked), 0x80),
	} {
		if r, err := parseReply(asked, data); err == nil {
			t.Errorf("%s: %+v without an error", name, r)
		}
	}
	for _, name := range []string{"", "a..b", ".a", "a.", strings.Repeat("x", 64)} {
		if _, err := question(1, name, typeA); err == nil {
			t.Errorf("question(%q) without an error", name)
		}
	}
}

func TestSynthetic(t *testing.T) {
	for address, want := range map[string]bool{
		"198.18.0.0": true, "198.19.255.255": true, "198.17.255.255": false, "198.20.0.0": false, "127.0.0.1": false,
		"fdc0:1::1": true, "fc00::1": false, "fe80::1": false, "::1": false, "2001:db8::1": false, "::ffff:198.18.0.1": false,
	} {
		a := net.ParseIP(address)
		if v4 := a.To4(); v4 != nil && !strings.Contains(address, ":") {
			a = v4
		}
		if got := synthetic(a); got != want {
			t.Errorf("synthetic(%s) = %v, want %v", address, got, want)
		}
	}
	if synthetic(nil) || synthetic(make([]byte, 5)) {
		t.Error("an address of another size is synthetic")
	}
}

func FuzzParseReply(f *testing.F) {
	asked, good := reply0(f)
	f.Add(good)
	f.Add(asked)
	f.Add(append(slices.Clone(good), 0xc0))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseReply(asked, data)
		if err != nil {
			return
		}
		if r.answers > maxAnswers || len(r.addresses) > r.answers || binary.BigEndian.Uint16(data) != queryID {
			t.Errorf("parseReply(%x) = %+v", data, r)
		}
	})
}

// TestUnlisted wants no attempt to dial what a rule names: that connection is led to the proxy.
func TestUnlisted(t *testing.T) {
	if got := unlisted(outside4, nil); got != outside4 {
		t.Errorf("without literals: %v", got)
	}
	if got := unlisted(outside4, []string{"203.0.113.2", "203.0.113.1"}).String(); got != "203.0.113.3" {
		t.Errorf("with two literals: %s", got)
	}
	if got := unlisted(outside6, []string{"2001:db8::1"}).String(); got != "2001:db8::2" {
		t.Errorf("with an IPv6 literal: %s", got)
	}
}
