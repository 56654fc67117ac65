package dns

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

// records collects what is reported.
type records struct {
	mu  sync.Mutex
	all []flow.Record
}

func (r *records) add(f flow.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, f)
}

func (r *records) take() []flow.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.all
	r.all = nil
	return out
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func resolver(t testing.TB, allow ...string) (*Resolver, *records) {
	t.Helper()
	rules, err := hostmatch.ParseRules(allow, []string{"denied.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	got := &records{}
	return &Resolver{
		Names: NewNames(), Report: got.add, IPv6: true, Now: func() time.Time { return noon },
		Decide: func(h hostmatch.Host) Decision {
			d := hostmatch.MatchName(rules, h)
			return Decision{Allow: d.Verdict == hostmatch.Allow, Reason: d.Reason, Needed: d.Needed, Rule: d.Rule}
		},
	}, got
}

func question(name string, kind uint16) *dns.Msg {
	m := (&dns.Msg{}).SetQuestion(dns.Fqdn(name), kind)
	m.Id = 4711
	return m
}

func exchange(t testing.TB, r *Resolver, m *dns.Msg) *dns.Msg {
	t.Helper()
	data, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	out := r.answer(data, 0)
	if out == nil {
		return nil
	}
	back := &dns.Msg{}
	if err := back.Unpack(out); err != nil {
		t.Fatalf("%x: %v", out, err)
	}
	asked, err := (&dns.Msg{Question: m.Question}).Pack()
	if err != nil || !bytes.HasPrefix(out[headerLen:], asked[headerLen:]) {
		t.Errorf("%x does not repeat the question %x: %v", out, asked, err)
	}
	if back.Id != m.Id || !back.Response || back.Opcode != m.Opcode || back.RecursionDesired != m.RecursionDesired {
		t.Errorf("header %+v for %+v", back.MsgHdr, m.MsgHdr)
	}
	return back
}

func values(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(out, " ")
}

func TestAnswers(t *testing.T) {
	r, got := resolver(t, "github.com", "*.example.com", "git.corp:22=10.0.0.0/8", "host.coworker.internal:8080")
	v4, v6, _ := r.Names.For(host(t, "github.com"))
	arpa4, _ := dns.ReverseAddr(v4.String())
	arpa6, _ := dns.ReverseAddr(v6.String())
	for _, c := range []struct {
		name     string
		kind     uint16
		rcode    int
		answer   string
		protocol string // of the record; empty if there is none
		reason   string
	}{
		{"github.com", dns.TypeA, dns.RcodeSuccess, "198.18.0.2", "dns-a", "listed"},
		{"GitHub.cOm", dns.TypeA, dns.RcodeSuccess, "198.18.0.2", "dns-a", "listed"},
		{"github.com", dns.TypeAAAA, dns.RcodeSuccess, "fdc0:c0c0:c0c0::2", "dns-aaaa", "listed"},
		{"a.example.com", dns.TypeA, dns.RcodeSuccess, "198.18.0.3", "dns-a", "listed"},
		{"git.corp", dns.TypeA, dns.RcodeSuccess, "198.18.0.4", "dns-a", "listed"},
		{"host.coworker.internal", dns.TypeA, dns.RcodeSuccess, "198.18.0.5", "dns-a", "listed"},
		{"github.com", dns.TypeHTTPS, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypeSVCB, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypeTXT, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypeMX, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypeSRV, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypeCNAME, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", dns.TypePTR, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"github.com", 65280, dns.RcodeSuccess, "", "dns-other", "listed"},
		{"localhost", dns.TypeA, dns.RcodeSuccess, "127.0.0.1", "", ""},
		{"a.b.LOCALHOST", dns.TypeAAAA, dns.RcodeSuccess, "::1", "", ""},
		{"localhost", dns.TypeTXT, dns.RcodeSuccess, "", "", ""},
		{arpa4, dns.TypePTR, dns.RcodeSuccess, "github.com.", "", ""},
		{strings.ToUpper(arpa6), dns.TypePTR, dns.RcodeSuccess, "github.com.", "", ""},
		{"1.0.0.127.in-addr.arpa", dns.TypePTR, dns.RcodeSuccess, "localhost.", "", ""},

		{"evil.example", dns.TypeA, dns.RcodeNameError, "", "dns-a", "no rule allows"},
		{"evil.example", dns.TypeAAAA, dns.RcodeNameError, "", "dns-aaaa", "no rule allows"},
		{"secret.evil.example", dns.TypeTXT, dns.RcodeNameError, "", "dns-other", "no rule allows"},
		{"evil.example", dns.TypeHTTPS, dns.RcodeNameError, "", "dns-other", "no rule allows"},
		{"example.com", dns.TypeA, dns.RcodeNameError, "", "dns-a", "no rule allows"},
		{"denied.example.com", dns.TypeA, dns.RcodeNameError, "", "dns-a", "denied by"},
		{"github.com.corp.example", dns.TypeA, dns.RcodeNameError, "", "dns-a", "no rule allows"},
		{"intranet", dns.TypeA, dns.RcodeNameError, "", "dns-a", "no rule allows"},
		{"8.8.8.8.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, "", "dns-other", "no name here"},
		{"5.0.18.198.in-addr.arpa", dns.TypeA, dns.RcodeNameError, "", "dns-a", "no rule allows"},
		{"200.0.18.198.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, "", "dns-other", "no name here"},
		{"18.198.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, "", "dns-other", "no rule allows"},
		{"127.1", dns.TypeA, dns.RcodeNameError, "", "dns-a", "odd spelling"},
		{"1.2.3.4", dns.TypeA, dns.RcodeNameError, "", "dns-a", "where a name is expected"},
		{`git\032hub.com`, dns.TypeA, dns.RcodeNameError, "", "dns-a", "at octet"},
		{`github.com\000.example.com`, dns.TypeA, dns.RcodeNameError, "", "dns-a", "slash"},
		{`a\.localhost`, dns.TypeA, dns.RcodeNameError, "", "dns-a", "slash"},
		{"xn--a.example.com", dns.TypeA, dns.RcodeNameError, "", "dns-a", "label"},
		{"*.example.com", dns.TypeA, dns.RcodeNameError, "", "dns-a", "star"},
		{"-a.example.com", dns.TypeA, dns.RcodeNameError, "", "dns-a", "hyphen"},

		{"github.com", dns.TypeANY, dns.RcodeRefused, "", "dns-other", "type 255"},
		{"github.com", dns.TypeAXFR, dns.RcodeRefused, "", "dns-other", "type 252"},
		{"github.com", dns.TypeIXFR, dns.RcodeRefused, "", "dns-other", "type 251"},
		{"github.com", dns.TypeTKEY, dns.RcodeRefused, "", "dns-other", "type 249"},
		{"github.com", dns.TypeOPT, dns.RcodeRefused, "", "dns-other", "type 41"},
		{"github.com", 0, dns.RcodeRefused, "", "dns-other", "type 0"},
		{".", dns.TypeNS, dns.RcodeRefused, "", "dns-other", "root"},
	} {
		for _, edns := range []bool{false, true} {
			m := question(c.name, c.kind)
			if edns {
				m.SetEdns0(1232, true)
			}
			back := exchange(t, r, m)
			recs := got.take()
			at := fmt.Sprintf("%s %s edns %v", c.name, dns.Type(c.kind), edns)
			if back == nil || back.Rcode != c.rcode || values(back) != c.answer || len(back.Question) != 1 || back.Truncated || back.Authoritative || back.AuthenticatedData {
				t.Errorf("%s: %v", at, back)
				continue
			}
			checkShape(t, at, back, edns)
			want := flow.Record{Protocol: c.protocol, Verdict: flow.Deny, Reason: c.reason}
			if c.rcode == dns.RcodeSuccess {
				want.Verdict = flow.Allow
			}
			checkRecord(t, at, recs, want)
		}
	}
}

// checkShape: "no" and "nothing of that type" have an SOA, answers live a minute, an OPT record comes only to whoever sent
// one, and says why.
func checkShape(t *testing.T, at string, m *dns.Msg, edns bool) {
	t.Helper()
	if negative := m.Rcode == dns.RcodeNameError || m.Rcode == dns.RcodeSuccess && len(m.Answer) == 0; negative != (len(m.Ns) == 1) {
		t.Errorf("%s: authority %v", at, m.Ns)
	}
	for _, rr := range m.Answer {
		if rr.Header().Ttl != 60 || rr.Header().Name != m.Question[0].Name {
			t.Errorf("%s: answer %s", at, rr)
		}
	}
	opt := m.IsEdns0()
	if (opt != nil) != edns || len(m.Extra) > 1 {
		t.Fatalf("%s: additional %v", at, m.Extra)
	}
	if edns {
		if wants := m.Rcode != dns.RcodeSuccess; !opt.Do() || opt.UDPSize() != 1232 || (len(opt.Option) == 1) != wants {
			t.Errorf("%s: %s", at, opt)
		}
	}
}

// checkRecord wants one record, with a part of the reason, or none if there is no protocol.
func checkRecord(t *testing.T, at string, got []flow.Record, want flow.Record) {
	t.Helper()
	if want.Protocol == "" {
		if len(got) != 0 {
			t.Errorf("%s: records %+v", at, got)
		}
		return
	}
	if len(got) != 1 || got[0].Protocol != want.Protocol || got[0].Verdict != want.Verdict || !strings.Contains(got[0].Reason, want.Reason) || got[0].Count != 1 || got[0].Port != 0 ||
		got[0].Source != flow.DNS || got[0].Begun != noon {
		t.Errorf("%s: records %+v", at, got)
	}
}

func TestExtendedError(t *testing.T) {
	r, got := resolver(t)
	m := question("evil.example", dns.TypeA)
	m.SetEdns0(4096, false)
	back := exchange(t, r, m)
	opt := back.IsEdns0()
	if opt == nil || opt.Do() || len(opt.Option) != 1 {
		t.Fatal(back)
	}
	e, ok := opt.Option[0].(*dns.EDNS0_EDE)
	if !ok || e.InfoCode != dns.ExtendedErrorCodeFiltered || !strings.Contains(e.ExtraText, "no rule allows evil.example; needed: evil.example") {
		t.Errorf("%v", opt)
	}
	if recs := got.take(); len(recs) != 1 || recs[0].Host != "evil.example" || recs[0].Needed == "" {
		t.Errorf("%+v", recs)
	}
	if soa := back.Ns[0].(*dns.SOA); soa.Hdr.Ttl != negativeTTL || soa.Minttl != negativeTTL {
		t.Errorf("%s", soa)
	}
}

func TestVersion(t *testing.T) {
	r, got := resolver(t, "github.com")
	m := question("github.com", dns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().SetVersion(1)
	if back := exchange(t, r, m); back.Rcode != dns.RcodeBadVers || len(back.Answer) != 0 || back.IsEdns0().Version() != 0 {
		t.Errorf("%v", back)
	}
	if recs := got.take(); len(recs) != 1 || recs[0].Verdict != flow.Deny {
		t.Errorf("%+v", recs)
	}
}

func TestWithoutIPv6(t *testing.T) {
	r, _ := resolver(t, "github.com")
	r.IPv6 = false
	for _, name := range []string{"github.com", "localhost"} {
		if back := exchange(t, r, question(name, dns.TypeAAAA)); back.Rcode != dns.RcodeSuccess || len(back.Answer) != 0 || len(back.Ns) != 1 {
			t.Errorf("%s: %v", name, back)
		}
	}
}

func TestNoAddressLeft(t *testing.T) {
	r, got := resolver(t, "*.example.com")
	r.Names = newNames(1)
	if back := exchange(t, r, question("a.example.com", dns.TypeA)); values(back) != "198.18.0.2" {
		t.Fatal(back)
	}
	got.take()
	back := exchange(t, r, question("b.example.com", dns.TypeAAAA))
	if recs := got.take(); back.Rcode != dns.RcodeRefused || len(back.Answer) != 0 || len(recs) != 1 || recs[0].Verdict != flow.Deny || !strings.Contains(recs[0].Reason, "no address left") {
		t.Errorf("%v %+v", back, recs)
	}
	if back := exchange(t, r, question("a.example.com", dns.TypeA)); values(back) != "198.18.0.2" {
		t.Errorf("the name that has an address: %v", back)
	}
}

func TestMalformed(t *testing.T) {
	r, got := resolver(t, "github.com")
	good, err := question("github.com", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b)
		return b
	}
	two := question("github.com", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	extra := question("github.com", dns.TypeA)
	extra.Extra = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: netip.MustParseAddr("192.0.2.1").AsSlice()}}
	options := question("github.com", dns.TypeA)
	options.SetEdns0(512, false).SetEdns0(512, false)
	named := question("github.com", dns.TypeA)
	named.SetEdns0(512, false).IsEdns0().Hdr.Name = "x."
	for name, c := range map[string]struct {
		message []byte
		rcode   int // -1: no reply
	}{
		"empty": {nil, -1}, "short": {good[:11], -1}, "an answer": {with(func(b []byte) { b[2] |= 0x80 }), -1}, "too long": {make([]byte, maxQuery+1), -1},
		"status": {with(func(b []byte) { b[2] |= 2 << 3 }), dns.RcodeNotImplemented}, "notify": {with(func(b []byte) { b[2] |= 4 << 3 }), dns.RcodeNotImplemented},
		"update": {with(func(b []byte) { b[2] |= 5 << 3 }), dns.RcodeNotImplemented}, "opcode 15": {with(func(b []byte) { b[2] |= 15 << 3 }), dns.RcodeNotImplemented},
		"header only": {good[:12], dns.RcodeFormatError}, "no question": {with(func(b []byte) { b[5] = 0 }), dns.RcodeFormatError}, "cut": {good[:len(good)-1], dns.RcodeFormatError},
		"65535 questions": {with(func(b []byte) { b[4], b[5] = 255, 255 }), dns.RcodeFormatError}, "an answer record": {with(func(b []byte) { b[7] = 1 }), dns.RcodeFormatError},
		"an authority": {with(func(b []byte) { b[9] = 1 }), dns.RcodeFormatError}, "name that points to itself": {with(func(b []byte) { b[12], b[13] = 0xc0, 12 }), dns.RcodeFormatError},
		"label of a reserved type": {with(func(b []byte) { b[12] = 0x80 }), dns.RcodeFormatError}, "two questions": {packed(t, two), dns.RcodeFormatError},
		"an additional record": {packed(t, extra), dns.RcodeFormatError}, "two options": {packed(t, options), dns.RcodeFormatError}, "option with a name": {packed(t, named), dns.RcodeFormatError},
	} {
		out := r.answer(c.message, 0)
		recs := got.take()
		if len(recs) != 1 || recs[0].Verdict != flow.Deny || recs[0].Reason == "" || recs[0].Host != "" {
			t.Errorf("%s: records %+v", name, recs)
		}
		if c.rcode < 0 != (out == nil) || out != nil && (len(out) != headerLen || int(out[3]) != c.rcode || out[2]&0x80 == 0 || !bytes.Equal(out[:2], c.message[:2])) {
			t.Errorf("%s: %x, want code %d", name, out, c.rcode)
		}
	}
	if out := r.answer(good, 0); out == nil || out[3]&0xf != 0 {
		t.Errorf("the control is refused: %x", out)
	}
}

func packed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestClasses(t *testing.T) {
	r, got := resolver(t, "github.com", "version.bind")
	for _, class := range []uint16{dns.ClassCHAOS, dns.ClassHESIOD, dns.ClassNONE, dns.ClassANY, 0, 65535, dns.ClassINET | 1<<15} {
		m := question("version.bind", dns.TypeTXT)
		m.Question[0].Qclass = class
		back := exchange(t, r, m)
		if recs := got.take(); back.Rcode != dns.RcodeRefused || len(recs) != 1 || !strings.Contains(recs[0].Reason, "class") {
			t.Errorf("class %d: %v %+v", class, back, recs)
		}
	}
}

// The longest names and reasons fit into what the client takes, without truncation.
func TestSizes(t *testing.T) {
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label[:61]}, ".")
	r, _ := resolver(t, "*."+label+"."+label[:61])
	for _, c := range []struct {
		name string
		size uint16
		most int
	}{{long, 0, 512}, {long, 512, 512}, {long, 1, 512}, {long, 65535, 1232}, {"b." + long[2:], 512, 512}, {"evil.example", 512, 512}, {strings.Repeat(`\001.`, 126) + "a", 512, 512}, {strings.Repeat("a.", 126) + "b", 512, 512}} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeANY} {
			m := question(c.name, kind)
			if c.size > 0 {
				m.SetEdns0(c.size, true)
			}
			data := packed(t, m)
			out := r.answer(data, 0)
			if out == nil || len(out) > c.most || out[2]&2 != 0 || len(out) > len(data)+maxText+80 {
				t.Errorf("%.20s… with %d: %d bytes for %d, flags %x", c.name, c.size, len(out), len(data), out[2:4])
			}
		}
	}
}

// Whatever comes: no panic, no reply to an answer, a reply that can be read, within the limit, and addresses only of
// names that are allowed.
func FuzzAnswer(f *testing.F) {
	for _, m := range []*dns.Msg{question("github.com", dns.TypeA), question("evil.example", dns.TypeTXT), question("2.0.18.198.in-addr.arpa", dns.TypePTR), question("a.localhost", dns.TypeAAAA)} {
		for _, edns := range []bool{false, true} {
			if edns {
				m.SetEdns0(1232, true)
				m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{192, 0, 2, 0}}}
			}
			data, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, false)
			f.Add(data, true)
		}
	}
	r, got := resolver(f, "github.com", "*.example.com")
	r.Names = newNames(100)
	f.Fuzz(func(t *testing.T, data []byte, tcp bool) {
		size, most := 0, maxUDP
		if tcp {
			size, most = 65535, 65535
		}
		before := bytes.Clone(data)
		out := r.answer(data, size)
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
		if n := len(got.take()); n > 1 {
			t.Fatalf("%d records", n)
		}
		if out == nil {
			return
		}
		back := &dns.Msg{}
		if err := back.Unpack(out); err != nil || !back.Response || len(out) > most || data[2]&0x80 != 0 {
			t.Fatalf("%x gives %x: %v", data, out, err)
		}
		for _, rr := range back.Answer {
			name := strings.ToLower(rr.Header().Name)
			if !slices.ContainsFunc([]string{"github.com.", ".example.com.", "localhost.", ".arpa."}, func(s string) bool { return strings.HasSuffix(name, s) }) {
				t.Fatalf("%s is answered", rr)
			}
		}
	})
}
