package wallspec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/platform/config"
)

func TestParseNet(t *testing.T) {
	for _, c := range []struct {
		name        string
		net         Net
		allow, deny []string
		want        string // allow rules, "none" without a network, "!" and a part of the refusal
	}{
		{"nothing", Net{}, []string{"settings.example"}, nil, "none"},
		{"a rule", Net{Allow: []string{"a.example"}}, []string{"settings.example"}, nil, "a.example settings.example"},
		{"asking", Net{Ask: true}, nil, nil, ""},
		{"allowlist", Net{Mode: "allowlist"}, []string{"settings.example"}, nil, "settings.example"},
		{"open", Net{Mode: "open"}, nil, []string{"*.tracker.example"}, ""},
		{"none", Net{Mode: "none"}, nil, nil, "none"},
		{"none with a rule", Net{Mode: "none", Allow: []string{"a.example"}}, nil, nil, "!--net none"},
		{"none with a question", Net{Mode: "none", Ask: true}, nil, nil, "!--net none"},
		{"another mode", Net{Mode: "host"}, nil, nil, "!none, allowlist or open"},
		{"a URL", Net{Allow: []string{"https://a.example/"}}, nil, nil, "!no rule"},
		{"a wide star", Net{Allow: []string{"*.com"}}, nil, nil, "!no rule"},
		{"a star", Net{Allow: []string{"*"}}, nil, nil, "!no rule"},
		{"metadata", Net{Allow: []string{"169.254.169.254:80"}}, nil, nil, "!no rule"},
		{"loopback", Net{Allow: []string{"127.0.0.1:80"}}, nil, nil, "!no rule"},
		{"a bad setting", Net{Mode: "allowlist"}, []string{"a b"}, nil, "!no rule"},
		{"a bad denial", Net{Mode: "open"}, nil, []string{"http://x"}, "!net.deny"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := ParseNet(c.net, c.allow, c.deny)
			if want, refused := strings.CutPrefix(c.want, "!"); refused {
				var no *Error
				if !errors.As(err, &no) || !strings.Contains(err.Error(), want) {
					t.Fatalf("%+v, %v; want a refusal about %q", e, err, want)
				}
				return
			}
			switch {
			case err != nil:
				t.Fatal(err)
			case c.want == "none":
				if e != nil {
					t.Fatalf("%+v", e)
				}
			case e == nil || strings.Join(e.Allow, " ") != c.want || e.Open != (c.net.Mode == "open") || e.Rules.Open != e.Open:
				t.Fatalf("%+v", e)
			}
		})
	}
}

// TestNetPlan: a session with a network finds the proxy, the resolver and the company's certificates; one without finds
// none of them.
func TestNetPlan(t *testing.T) {
	host := newMachine().host(1000)
	without, err := Build(Request{Workspace: "/home/ada/src/proj"}, host)
	if err != nil {
		t.Fatal(err)
	}
	if without.Spec.Net != enforce.NetNone || hasEnv(without, "HTTP_PROXY") || strings.Contains(etcFile(without, "resolv.conf"), "nameserver") {
		t.Errorf("without a network: %q, %q", without.Spec.Net, etcFile(without, "resolv.conf"))
	}
	net := Net{
		Allow:   []string{"a.example", "203.0.113.9:5432", "203.0.113.9:5433", "[2001:db8::1]:22"},
		Environ: []string{"SSL_CERT_FILE=/etc/ssl/session/bundle.pem"}, GitConfig: []byte("[url \"https://a.example/\"]\n"),
		Files: []enforce.File{{Path: "ssl/session/bundle.pem", Data: []byte("x"), Mode: 0o644}},
	}
	egress, err := ParseNet(net, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	with, err := Build(Request{Workspace: "/home/ada/src/proj", Net: net, Egress: egress}, host)
	if err != nil {
		t.Fatal(err)
	}
	s := with.Spec
	if s.Net != enforce.NetAllowlist || !slices.Equal(s.Literals, []string{"203.0.113.9", "2001:db8::1"}) {
		t.Errorf("%q, literals %q", s.Net, s.Literals)
	}
	for _, want := range []string{"HTTP_PROXY=" + ProxyAddress, "https_proxy=" + ProxyAddress, "SSL_CERT_FILE=/etc/ssl/session/bundle.pem"} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("%s is not set: %q", want, s.Env)
		}
	}
	own, err := Build(Request{Workspace: "/home/ada/src/proj", Net: net, Egress: egress, Env: []string{"HTTP_PROXY=", "SSL_CERT_FILE=/x.pem"}}, host)
	if err != nil || !slices.Contains(own.Spec.Env, "HTTP_PROXY=") || !slices.Contains(own.Spec.Env, "SSL_CERT_FILE=/x.pem") {
		t.Errorf("what a person gives does not win: %v, %q", err, own.Spec.Env)
	}
	if !strings.Contains(etcFile(with, "resolv.conf"), "nameserver 127.0.0.53\n") || etcFile(with, "ssl/session/bundle.pem") != "x" {
		t.Errorf("files of /etc: %+v", s.Etc)
	}
	i := slices.IndexFunc(s.HomeFiles, func(f enforce.File) bool { return f.Path == ".gitconfig" })
	if i < 0 || !strings.Contains(string(s.HomeFiles[i].Data), `[url "https://a.example/"]`) {
		t.Errorf("no git settings in %+v", s.HomeFiles)
	}
	synthetic, err := ParseNet(Net{Allow: []string{"198.18.0.9:443=198.18.0.0/15"}}, nil, nil)
	if err == nil {
		_, err = Build(Request{Workspace: "/home/ada/src/proj", Egress: synthetic}, host)
	}
	if err == nil {
		t.Error("an address that stands for a name was taken as a rule")
	}
}

func hasEnv(p Plan, name string) bool {
	return slices.ContainsFunc(p.Spec.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

func etcFile(p Plan, name string) string {
	for _, f := range p.Spec.Etc {
		if f.Path == name {
			return string(f.Data)
		}
	}
	return ""
}

// Every rule of a shipped profile is one that can be parsed.
func TestProfileRules(t *testing.T) {
	for _, name := range ProfileNames() {
		p, err := FindProfile(name, "/nowhere", config.Read)
		if err != nil {
			t.Fatal(err)
		}
		var rules []string
		for _, r := range p.Allow {
			rules = append(rules, string(r))
		}
		if _, err := ParseNet(Net{Allow: rules}, nil, nil); err != nil {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}
