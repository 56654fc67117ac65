package credential

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"coworker/netproxy/hostmatch"
	"coworker/platform/secret"
)

func entry(name, host string, change func(*secret.Binding)) secret.Entry {
	e := secret.Entry{Name: name, Value: secret.NewValue("value-of-" + name), Source: secret.FromSet}
	e.Binding = secret.Binding{Host: host, Port: 443, Header: "Authorization", Scheme: secret.Bearer}
	if change != nil {
		change(&e.Binding)
	}
	return e
}

func rules(t *testing.T, allow, deny []string) hostmatch.Rules {
	t.Helper()
	r, err := hostmatch.ParseRules(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHostRules(t *testing.T) {
	all := []secret.Entry{
		entry("wide", "api.example.com", nil),
		entry("deep", "api.example.com", func(b *secret.Binding) { b.Path = "/v1/deep" }),
		entry("read", "api.example.com", func(b *secret.Binding) { b.Methods = []string{"GET"} }),
		entry("port", "api.example.com", func(b *secret.Binding) { b.Port = 8443 }),
		entry("user", "git.example.com", func(b *secret.Binding) { b.Scheme, b.User = secret.Basic, "ada" }),
		{Name: "unbound", Value: secret.NewValue("value-of-unbound")},
		entry("crooked", "API.example.com", nil),
		entry("plain", "api.example.com", func(b *secret.Binding) { b.Port = 80 }),
	}
	for _, c := range []struct {
		allow, deny []string
		want        string
	}{
		{nil, nil, ""},
		{[]string{"other.example.com"}, nil, ""},
		{[]string{"api.example.com"}, nil, "deep read wide"},
		{[]string{"api.example.com", "api.example.com:8443"}, nil, "deep read wide port"},
		{[]string{"api.example.com:8443"}, nil, "port"},
		{[]string{"api.example.com:80"}, nil, ""},
		{[]string{"api.example.com+raw"}, nil, ""},
		{[]string{"*.example.com"}, nil, "deep read wide user"},
		{[]string{"*.example.com"}, []string{"api.example.com"}, "user"},
		{[]string{"git.example.com=10.0.0.0/8"}, nil, "user"},
	} {
		var got []string
		for _, r := range HostRules(all, rules(t, c.allow, c.deny)) {
			got = append(got, r.Secret)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("allow %q deny %q: %q, want %q", c.allow, c.deny, got, c.want)
		}
	}
}

func TestHostRuleValue(t *testing.T) {
	e := entry("user", "git.example.com", func(b *secret.Binding) {
		b.Scheme, b.User, b.Path, b.Methods = secret.Basic, "ada", "/team", []string{"GET", "HEAD"}
	})
	got := HostRules([]secret.Entry{e}, rules(t, []string{"git.example.com"}, nil))
	if len(got) != 1 {
		t.Fatalf("%d rules", len(got))
	}
	r := got[0]
	if r.Value != "Basic YWRhOnZhbHVlLW9mLXVzZXI=" || r.Header != "Authorization" || r.Path != "/team" || r.Port != 443 || !slices.Equal(r.Methods, []string{"GET", "HEAD"}) {
		t.Errorf("rule %+v", r)
	}
}

// TestInsteadOf asks git itself what becomes of a remote.
func TestInsteadOf(t *testing.T) {
	entries := []secret.Entry{
		entry("forge", "forge.example.com", nil),
		entry("team", "hub.example.com", func(b *secret.Binding) { b.Path = "/team" }),
		entry("npm", "npm.example.com", func(b *secret.Binding) { b.Methods = []string{"GET", "HEAD"} }),
		entry("field", "field.example.com", func(b *secret.Binding) { b.Header = "X-Token" }),
		entry("closed", "closed.example.com", nil),
	}
	settings := InsteadOf(entries, rules(t, []string{"*.example.com"}, []string{"closed.example.com"}))
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ remote, want string }{
		{"git@forge.example.com:a/b.git", "https://forge.example.com/a/b.git"},
		{"ssh://git@forge.example.com/a/b.git", "https://forge.example.com/a/b.git"},
		{"ssh://git@forge.example.com:22/a/b.git", "https://forge.example.com/a/b.git"},
		{"https://forge.example.com/a/b.git", "https://forge.example.com/a/b.git"},
		{"git@hub.example.com:team/b.git", "https://hub.example.com/team/b.git"},
		{"git@hub.example.com:other/b.git", "git@hub.example.com:other/b.git"},
		{"git@npm.example.com:a/b", "git@npm.example.com:a/b"},
		{"git@field.example.com:a/b", "git@field.example.com:a/b"},
		{"git@closed.example.com:a/b", "git@closed.example.com:a/b"},
		{"git@forge.example.com.evil.test:a/b", "git@forge.example.com.evil.test:a/b"},
	} {
		cmd := exec.Command(git, "ls-remote", "--get-url", c.remote)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
		for i, s := range settings {
			cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.Key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.Value))
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)); got != c.want {
			t.Errorf("%s becomes %s, want %s", c.remote, got, c.want)
		}
	}
}
