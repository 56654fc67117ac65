package wallspec

import (
	"fmt"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/enforce/redirect"
	"coworker/netproxy/hostmatch"
)

// Net is what a person asked for about the network.
type Net struct {
	Mode  string   // --net; "" follows from the rest
	Allow []string // --allow, without names of groups such as registries
	Ask   bool     // --ask
	// Files are made in /etc for tools that need to trust the proxy's certificates, and Environ names them.
	Files   []enforce.File
	Environ []string // NAME=VALUE
	// GitConfig are lines for the private .gitconfig.
	GitConfig []byte
	// HomeFiles tell package managers inside which registries to use. They take the place of what would be made from the
	// person's files of the same names.
	HomeFiles []enforce.File
}

// Egress is the part of a plan that goes to the proxy; nil for a session without a network.
type Egress struct {
	Rules       hostmatch.Rules
	Allow, Deny []string // as they were written: flags, then settings
	Open        bool
}

// ParseNet settles what a session may reach, from flags and settings. It is apart from Build because credentials and
// certificates, which Build only places, follow from the rules.
func ParseNet(n Net, allow, deny []string) (*Egress, error) {
	mode := enforce.NetMode(n.Mode)
	asked := len(n.Allow) > 0 || n.Ask
	switch {
	case mode == "" && asked:
		mode = enforce.NetAllowlist
	case mode == "":
		mode = enforce.NetNone
	case mode == enforce.NetNone && asked:
		return nil, refuse("--net none", "leave --net out: --allow and --ask mean allowlist", "a session without a network reaches nothing, and --allow or --ask is given")
	}
	switch mode {
	case enforce.NetNone:
		return nil, nil
	case enforce.NetAllowlist, enforce.NetOpen:
	default:
		return nil, refuse("--net", "", "want none, allowlist or open, got %q", n.Mode)
	}
	e := &Egress{Allow: slices.Concat(n.Allow, allow), Deny: deny, Open: mode == enforce.NetOpen}
	for _, r := range e.Allow {
		if _, err := hostmatch.ParseAllow(r); err != nil {
			return nil, refuse("--allow", "a rule is HOST[:PORT][=CIDR][+raw]: github.com, *.example.com:8443, git.corp:22=10.0.0.0/8+raw", "%q is no rule: %v", r, err)
		}
	}
	for _, r := range e.Deny {
		if _, err := hostmatch.ParseDeny(r); err != nil {
			return nil, refuse("net.deny", "a rule is HOST[:PORT] or *.HOST[:PORT]", "%q is no rule: %v", r, err)
		}
	}
	var err error
	if e.Rules, err = hostmatch.ParseRules(e.Allow, e.Deny); err != nil {
		return nil, refuse("--allow", "", "%v", err)
	}
	e.Rules.Open = e.Open
	return e, nil
}

// ProxyAddress is where the session's proxy is reached inside; see enforce/redirect.
const ProxyAddress = "http://127.0.0.1:3128"

// net places what programs need to find the proxy.
func (b *builder) net() error {
	b.plan.Spec.Net = enforce.NetNone
	e := b.req.Egress
	if e == nil {
		return nil
	}
	b.plan.Spec.Net = enforce.NetAllowlist
	if e.Open {
		b.plan.Spec.Net = enforce.NetOpen
		b.note("--net open: everything public can be reached, and can receive what the session reads")
	}
	seen := map[string]bool{}
	for _, text := range e.Allow {
		rule, err := hostmatch.ParseAllow(text)
		if err != nil {
			return refuse("--allow", "", "%v", err)
		}
		a, ok := rule.Literal()
		if ok && (redirect.Synthetic4.Contains(a) || redirect.Synthetic6.Contains(a)) {
			return refuse("--allow", "name the host, or reach it under another address", "%q lies in a range that stands for names inside a session", text)
		}
		if ok && !seen[a.String()] {
			seen[a.String()] = true
			b.plan.Spec.Literals = append(b.plan.Spec.Literals, a.String())
		}
	}
	b.plan.Spec.Etc = append(b.plan.Spec.Etc, b.req.Net.Files...)
	return nil
}

// netEnvironment are the variables by which programs find a proxy. Those that look at none of them get there through the
// name server and the redirect; with the variables they are told in words why a host is refused.
func (b *builder) netEnvironment(env map[string]string) {
	if b.req.Egress == nil {
		return
	}
	set := func(name, value string) {
		if _, given := env[name]; !given { // with --env a person can also take one of them away
			env[name] = value
		}
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		set(name, ProxyAddress)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		set(name, "localhost,127.0.0.0/8,127.0.0.1,::1,"+hostName)
	}
	for _, entry := range b.req.Net.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			set(name, value)
		}
	}
}

// resolvConf is the name server of the session.
func (b *builder) resolvConf() string {
	if b.req.Egress == nil {
		return "# No name server: this session has no network.\n"
	}
	return fmt.Sprintf("# The session's own: it answers for what the rules allow, and asks nobody.\nnameserver %s\noptions edns0\n", "127.0.0.53")
}
