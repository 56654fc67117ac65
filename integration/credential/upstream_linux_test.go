package credential

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// behindProxy puts the company's proxy into the person's environment, and returns its password.
func (p *person) behindProxy(variables ...string) secret {
	password := newSecret("pr0xy/Pass+"+rand.Text(), basic("ada", ""))
	password = newSecret(password.value, basic("ada", password.value), url.UserPassword("ada", password.value).String())
	p.want("proxy.test", basic("ada", password.value))
	p.variables = append(variables, "HTTPS_PROXY=http://"+url.UserPassword("ada", password.value).String()+"@proxy.test:3128")
	return password
}

// TestUpstream: all that leaves goes through the company's proxy, which resolves what this machine cannot.
func TestUpstream(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		password := p.behindProxy()
		l := p.lend(t)
		e := p.exec(t, slices.Concat([]string{"--allow", hidden}, allow("ok.test")), "sh", "-c", "curl -sS https://"+hidden+"/x; curl -sS https://ok.test/x; env -u https_proxy -u HTTPS_PROXY -u ALL_PROXY -u all_proxy curl -sS https://"+hidden+"/y")
		if e.code != 0 || e.out != "who are you?\nwelcome GET /x\nwho are you?\n" { // the credential is for ok.test, under that name
			t.Error(e)
		}
		if got := p.takeTunnels(); !slices.Equal(got, []string{"200 hidden.test:443", "200 203.0.113.10:443", "200 hidden.test:443"}) {
			t.Errorf("the company's proxy was asked for %q", got)
		}
		for _, r := range p.take() {
			if !strings.HasPrefix(r.from, addresses["proxy.test"]+":") {
				t.Errorf("%s%s was asked for from %s", r.host, r.uri, r.from)
			}
		}
		for _, one := range e.report.Egress {
			if want := one.Host == hidden && one.Port == 443; want != (one.ResolvedBy == "upstream") {
				t.Errorf("egress: %+v", one)
			}
		}
		f, e := p.seek(t, secret{"", slices.Concat(password.forms, l.all().forms)}, allow("ok.test"), "https://ok.test/echo", "--", "/usr/bin/python3", "-c", holdEcho)
		if len(f.Hits) > 0 {
			t.Errorf("inside: %q", f.Hits)
		}
		p.wantNone(t, password, "what coworker says", []byte(e.out+e.err+e.rawText+p.must(t, "", "net", "log", "--json").out+p.must(t, "", "audit", "export").out))
		for name, data := range p.files(t) {
			p.wantNone(t, password, name, data)
		}
	})
}

// TestNoProxy: what the person reaches directly, the session does too.
func TestNoProxy(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		p.behindProxy("NO_PROXY=localhost,.direct.test")
		e := p.exec(t, allow("direct.test", "other.test"), "curl", "-sS", "https://direct.test/x", "https://other.test/x")
		if e.code != 0 || strings.Count(e.out, "welcome GET /x") != 2 {
			t.Error(e)
		}
		if got := p.takeTunnels(); !slices.Equal(got, []string{"200 203.0.113.13:443"}) {
			t.Errorf("the company's proxy was asked for %q", got)
		}
		for _, r := range to("direct.test:443", p.take()) {
			if !strings.HasPrefix(r.from, "203.0.113.1:") {
				t.Errorf("direct.test was asked for from %s", r.from)
			}
		}
	})
}

// TestUpstreamRefuses: the reason names the company's proxy, and no rule is said to help.
func TestUpstreamRefuses(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		password := p.behindProxy()
		for _, c := range []struct{ name, wanted, variable, says string }{
			{"another password", basic("ada", "changed since"), p.variables[0], "the upstream proxy does not accept the user and password that it was given (407)"},
			{"no password", basic("ada", password.value), "HTTPS_PROXY=http://proxy.test:3128", "the upstream proxy wants a user and password (407)"},
			{"nobody there", "", "HTTPS_PROXY=http://proxy.test:3129", "the upstream proxy: "},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.want("proxy.test", c.wanted)
				p.variables = []string{c.variable}
				e := p.exec(t, allow("ok.test"), "curl", "-sS", "-i", "http://ok.test:443/x", "https://ok.test/x")
				if e.code == 0 && !strings.Contains(e.out, "HTTP/1.1 502") || !strings.Contains(e.out+e.err, c.says) || strings.Contains(e.err, "allows it") {
					t.Error(e)
				}
				p.wantNone(t, password, "what was shown", []byte(e.out+e.err+e.rawText))
			})
		}
		for name, value := range map[string]string{"a path": "http://proxy.test:3128/x", "another kind": "socks5://ada:" + url.QueryEscape(password.value) + "@proxy.test:1080"} {
			p.variables = []string{"HTTPS_PROXY=" + value}
			e := p.exec(t, allow("ok.test"), "touch", "ran")
			if e.code != 123 || e.report.Started != nil || !strings.Contains(e.err, "HTTPS_PROXY") || !strings.Contains(e.err, "hint:") {
				t.Errorf("%s: %v", name, e)
			}
			p.wantNone(t, password, fmt.Sprintf("the refusal of %s", name), []byte(e.err+e.rawText))
		}
	})
}
