package hostmatch

import (
	"net/netip"
	"strings"
	"testing"

	"coworker/netproxy/addrclass"
	"pgregory.net/rapid"
)

func TestParseAllowRefuses(t *testing.T) {
	for in, reason := range map[string]string{
		"": "empty rule", " ": "empty rule", "\t": "empty rule", ",": "','", "a b": "0x20", "*": "--net open", "*:443": "--net open", "*.": "empty host", "*.com": "unrelated",
		"*.com:443": "unrelated", "*.co.uk": "unrelated", "*.com.au:80": "unrelated", "hooks.*.com": "beginning", "*.*.example.com": "beginning", "**.example.com": "beginning",
		"a*.example.com": "beginning", "*example.com": "beginning", "https://github.com": "not a URL", "github.com/path": "not a URL", "u@github.com": "user information",
		"github.com:": "empty port", "github.com:0": "zero", "github.com:https": "decimal", "github.com:443:443": "second colon", "github.com+RAW": "+raw", "github.com+raw+raw": "+raw",
		"github.com+": "+raw", "git.corp=": "CIDR", "git.corp=10.0.0.0": "CIDR", "git.corp=10.0.0.1/8": "bits set", "git.corp=0.0.0.0/0": "no rule opens", "git.corp=127.0.0.0/8": "no rule opens",
		"git.corp=169.254.0.0/16": "no rule opens", "git.corp=::ffff:10.0.0.0/104": "IPv4-mapped", "git.corp+raw=10.0.0.0/8": "+raw", "10.0.0.1=10.0.0.0/8": "needs no network",
		"127.0.0.1:80": "host.coworker.internal", "[::1]:80": "host.coworker.internal", "169.254.169.254": "metadata", "[::ffff:169.254.169.254]": "metadata", "[64:ff9b::7f00:1]": "loopback",
		"0.0.0.0:80": "unspecified", "2606:4700::1": "second colon", "*.10.0.0.1": "below an address", "localhost:80": "host.coworker.internal:PORT", "a.localhost": "host.coworker.internal:PORT",
		"*.localhost": "unrelated", "*.coworker.internal": "does not cover", "host.coworker.internal=10.0.0.0/8": "loopback", "127.1": "127.0.0.1",
		"bücherя.example": "mixes", "ﬁ.example": "xn-- form", "İstanbul.example": "U+0130", "\u212Aubernetes.example": "U+212A", "a\u0301.example": "xn-- form", "／.example": "xn-- form", "github。com": "xn-- form",
	} {
		if r, err := ParseAllow(in); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %+v %v, want a reason with %q", in, r, err, reason)
		}
	}
}

func TestParseDeny(t *testing.T) {
	for _, in := range []string{"*", "*.com", "evil.example", "evil.example:80", "10.0.0.1", "localhost"} {
		if _, err := ParseDeny(in); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	for _, in := range []string{"", "evil.example+raw", "evil.example=10.0.0.0/8", "a.*.b", "evil.example:99999"} {
		if _, err := ParseDeny(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		allow, deny string
		open        bool
		to          string
		want        Verdict
		raw         bool
		text        string // in the rule that decides, or in the reason
	}{
		{allow: "github.com", to: "github.com:443", want: Allow, text: "github.com"},
		{allow: "github.com", to: "GITHUB.com.:443", want: Allow, text: "github.com"},
		{allow: "github.com", to: "github.com:22", text: "not with port 22"},
		{allow: "github.com:22", to: "github.com:22", want: Allow, raw: true, text: "github.com:22"},
		{allow: "github.com+raw", to: "github.com:443", want: Allow, raw: true, text: "+raw"},
		{allow: "*.github.com github.com+raw", to: "github.com:443", want: Allow, raw: true, text: "github.com+raw"},
		{allow: "github.com+raw github.com", to: "github.com:443", want: Allow, text: "github.com"},
		{allow: "*.example.com+raw *.api.example.com", to: "x.api.example.com:443", want: Allow, text: "*.api.example.com"},
		{allow: "*.github.com", to: "github.com:443", text: "no rule allows"},
		{allow: "*.github.com", to: "evilgithub.com:443", text: "no rule allows"},
		{allow: "*.github.com", to: "a.b.github.com:443", want: Allow},
		{allow: "*.github.com", deny: "evil.github.com", to: "evil.github.com:443", text: "denied by"},
		{allow: "evil.github.com", deny: "*.github.com", to: "evil.github.com:443", text: "denied by"},
		{allow: "github.com", deny: "*", to: "github.com:443", text: "denied by"},
		{allow: "github.com", deny: "github.com:22", to: "github.com:443", want: Allow},
		{allow: "github.com:80", deny: "github.com", to: "github.com:80", text: "denied by"},
		{allow: "10.0.0.5:5000", to: "10.0.0.5:5000", want: Allow, raw: true},
		{allow: "10.0.0.5:5000", to: "[::ffff:10.0.0.5]:5000", want: Allow, raw: true},
		{allow: "[2606:4700::1]", to: "[2606:4700:0::1]:443", want: Allow},
		{allow: "host.coworker.internal:5432", to: "host.coworker.internal:5432", want: Allow, raw: true},
		{open: true, to: "host.coworker.internal:5432", text: "no rule allows"},
		{open: true, to: "anything.example:443", want: Allow, text: "--net open"},
		{open: true, to: "anything.example:22", want: Allow, raw: true, text: "--net open"},
		{open: true, deny: "evil.example", to: "evil.example:443", text: "denied by"},
		{open: true, to: "localhost:80", text: "loopback"},
		{open: true, to: "x.localhost:80", text: "loopback"},
		{to: "127.0.0.1:80", text: "loopback"}, {to: "169.254.169.254:80", text: "metadata"}, {to: "github.com:443", text: "no rule allows"},
		{allow: "bücher.example", to: "xn--bcher-kva.example:443", want: Allow}, {allow: "Bücher.example", to: "xn--bcher-kva.example:443", want: Allow},
		{allow: "*.日本語.example", to: "a.xn--wgv71a119e.example:443", want: Allow},
	} {
		rules, err := ParseRules(strings.Fields(c.allow), strings.Fields(c.deny))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		rules.Open = c.open
		h, port, err := ParseAuthority(c.to, 0)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		d := Match(rules, h, port)
		if d.Verdict != c.want || d.Raw != c.raw || !strings.Contains(d.Rule+" "+d.Reason, c.text) {
			t.Errorf("allow %q deny %q open %v: %s gives %+v, want %s, raw %v, %q", c.allow, c.deny, c.open, c.to, d, c.want, c.raw, c.text)
		}
	}
}

func TestGrant(t *testing.T) {
	get := func(rules string, to string) Decision {
		r, err := ParseRules(strings.Fields(rules), nil)
		if err != nil {
			t.Fatal(err)
		}
		h, port, err := ParseAuthority(to, 0)
		if err != nil {
			t.Fatal(err)
		}
		return Match(r, h, port)
	}
	for _, c := range []struct {
		rules, to, addr string
		want            bool
	}{
		{"git.corp=10.0.0.0/8", "git.corp:443", "10.1.1.1", true}, {"git.corp=10.0.0.0/8", "git.corp:443", "192.168.1.1", false}, {"git.corp=10.0.0.0/8", "git.corp:443", "8.8.8.8", false},
		{"git.corp=10.0.0.0/8 git.corp=192.168.0.0/16", "git.corp:443", "192.168.1.1", true}, {"git.corp=10.0.0.0/8 git.corp", "git.corp:443", "8.8.8.8", true},
		{"*.corp.example git.corp.example=10.0.0.0/8", "git.corp.example:443", "8.8.8.8", false}, {"github.com", "github.com:443", "10.0.0.1", false},
		{"host.coworker.internal:80", "host.coworker.internal:80", "127.0.0.1", true}, {"host.coworker.internal:80", "host.coworker.internal:80", "10.0.0.1", false},
		{"10.0.0.5:80", "10.0.0.5:80", "10.0.0.5", true},
	} {
		d := get(c.rules, c.to)
		if ok, reason := addrclass.Allowed(netip.MustParseAddr(c.addr), d.Grant, nil); ok != c.want || d.Verdict != Allow {
			t.Errorf("%q: %s at %s is %v (%s), want %v", c.rules, c.to, c.addr, ok, reason, c.want)
		}
	}
	if d := get("github.com", "evil.example:443"); d.Needed != "evil.example" || !zeroGrant(d.Grant) {
		t.Errorf("a refusal grants %+v and needs %q", d.Grant, d.Needed)
	}
	if d := get("github.com", "github.com:22"); d.Needed != "github.com:22" {
		t.Errorf("needed %q", d.Needed)
	}
	if d := get("github.com", "169.254.169.254:80"); d.Needed != "" {
		t.Errorf("metadata can be allowed by %q", d.Needed)
	}
}

func zeroGrant(g addrclass.Grant) bool {
	return !g.Literal.IsValid() && len(g.Ranges) == 0 && !g.Public && !g.HostService
}

func TestMatchName(t *testing.T) {
	rules, err := ParseRules([]string{"github.com:22", "*.example.com", "bad.example.com", "both.test:80"}, []string{"bad.example.com", "both.test:80"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Verdict{"github.com": Allow, "a.example.com": Allow, "example.com": Deny, "bad.example.com": Deny, "both.test": Deny, "evil.test": Deny, "localhost": Deny} {
		h, err := ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := MatchName(rules, h); d.Verdict != want || d.Reason == "" {
			t.Errorf("%s: %+v, want %s", name, d, want)
		}
	}
	if MatchName(rules, Host{}).Verdict != Deny || Match(rules, Host{}, 443).Verdict != Deny {
		t.Error("no host is allowed")
	}
}

// A suggestion, taken as a rule, allows what it was suggested for.
func TestSuggestionIsARule(t *testing.T) {
	label := rapid.StringMatching(`[a-z]([a-z0-9-]{0,8}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".")
		port := rapid.Uint16Range(1, 65535).Draw(t, "port")
		h, err := ParseHost(name)
		if err != nil || isLocalhost(name) {
			return
		}
		d := Match(Rules{}, h, port)
		rules, err := ParseRules([]string{d.Needed}, nil)
		if err != nil || d.Verdict != Deny {
			t.Fatalf("%q: %v", d.Needed, err)
		}
		if d := Match(rules, h, port); d.Verdict != Allow {
			t.Fatalf("%s: %+v", name, d)
		}
		if wild, err := ParseAllow("*." + name); err == nil && wild.covers(h) {
			t.Fatalf("a wildcard covers its apex %s", name)
		}
	})
}

func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"github.com", "*.example.com:8443+raw", "git.corp:443=10.0.0.0/8", "[::1]:80", "bücher.example", "*", "a=b+raw"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseAllow(s)
		if err != nil {
			return
		}
		for _, to := range []string{"169.254.169.254", "127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[64:ff9b::a9fe:a9fe]"} {
			h, err := ParseHost(to)
			if err != nil {
				t.Fatal(err)
			}
			if r.covers(h) {
				t.Fatalf("rule %q covers %s", s, to)
			}
		}
		if r.port == 0 || r.host.IsZero() == (r.suffix == "") {
			t.Fatalf("rule %q is %+v", s, r)
		}
	})
}
