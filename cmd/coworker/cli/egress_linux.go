package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"coworker/enforce"
	"coworker/netproxy/control"
	"coworker/netproxy/flow"
	"coworker/platform/config"
	"coworker/platform/redact"
	"coworker/platform/secret"
	"coworker/runtime/session"
	"coworker/runtime/upstream"
	"coworker/runtime/wallspec"
)

// askTime is how long a connection waits for the person. The linker shortens it for tests.
var askTime = "1m"

func askLimit() time.Duration {
	limit, err := time.ParseDuration(askTime)
	if err != nil {
		return 0 // nobody is asked, so nothing is allowed
	}
	return limit
}

// decideNet settles what a session may reach: into the request for the Spec, and into what goes to the proxy. It returns
// the values that must not reach the record.
func (e *environment) decideNet(ctx context.Context, f execFlags, p *planned, req *wallspec.Request) ([]redact.Secret, error) {
	req.Net = wallspec.Net{Mode: f.net, Allow: f.allow, Ask: f.ask}
	var err error
	if req.Net.Allow, req.Net.HomeFiles, err = e.expandGroups(ctx, p, f); err != nil {
		return nil, err
	}
	req.Egress, err = wallspec.ParseNet(req.Net, ruleTexts(p.settings.Net.Allow), ruleTexts(p.settings.Net.Deny))
	if err != nil {
		return nil, err
	}
	if req.Egress == nil {
		return e.knownSecrets(), nil
	}
	p.proxy = load(session.OpenProxy)
	config := control.Config{Allow: req.Egress.Allow, Deny: req.Egress.Deny, Open: req.Egress.Open}
	if f.ask {
		config.Ask = askLimit()
	}
	secrets, err := e.secrets()
	if err != nil {
		return nil, err
	}
	if config.Upstream, err = companyProxy(p, secrets); err != nil {
		return nil, err
	}
	if config.Hosts, err = hostRules(p, secrets, req.Egress.Rules); err != nil {
		return nil, err
	}
	if config.CA, req.Net.Files, req.Net.Environ, err = e.trustInside(p, len(config.Hosts) > 0); err != nil {
		return nil, fmt.Errorf("make the session's certificates: %w", err)
	}
	req.Net.GitConfig = gitSettings(secrets, req.Egress.Rules)
	p.egress = &session.Egress{Config: config, Environ: proxyEnviron(p.host)}
	return append(secret.Redactions(secrets), upstreamSecret(config.Upstream)...), nil
}

// knownSecrets are the stored values, for a session that sends none of them anywhere: its command may still hold one. It
// runs without them if the store cannot be opened.
func (e *environment) knownSecrets() []redact.Secret {
	entries, err := e.secrets()
	if err != nil {
		e.note("note", "a stored secret in this command would stand in the record as it is: "+visible(err.Error()), hintFor(err))
		return nil
	}
	return secret.Redactions(entries)
}

// companyProxy is the proxy between this machine and the rest, from the settings or the environment.
func companyProxy(p *planned, secrets []secret.Entry) (*control.Upstream, error) {
	proxy, err := namedUpstream(p)
	name := p.settings.Net.UpstreamSecret
	if err != nil || proxy == nil || name == "" {
		return proxy, err
	}
	i := slices.IndexFunc(secrets, func(e secret.Entry) bool { return e.Name == name })
	if i < 0 {
		return nil, &usageError{text: fmt.Sprintf("net.upstream_secret in %s: there is no secret %q", p.settings.Source, name), hint: fmt.Sprintf("coworker secrets set %s --unbound", name)}
	}
	user, password, ok := strings.Cut(secrets[i].Value.Reveal(), ":")
	if !ok {
		return nil, &usageError{text: fmt.Sprintf("net.upstream_secret in %s: the secret %q is not USER:PASSWORD", p.settings.Source, name), hint: fmt.Sprintf("coworker secrets set %s --unbound --replace", name)}
	}
	proxy.User, proxy.Password = user, password
	return proxy, nil
}

func namedUpstream(p *planned) (*control.Upstream, error) {
	switch setting := p.settings.Net.Upstream; setting {
	case "none":
		return nil, nil
	case "", "environment":
		proxy, source, err := upstream.FromEnvironment(p.host.Environ)
		if err != nil {
			return nil, &usageError{text: fmt.Sprintf("%s: %v", source, err), hint: `upstream = "none" below [net] in the settings ignores it`}
		}
		return proxy, nil
	default:
		proxy, err := upstream.Parse(setting)
		if err != nil {
			return nil, &usageError{text: fmt.Sprintf("net.upstream in %s: %v", p.settings.Source, err), hint: `the form is "http://proxy.example:3128"`}
		}
		return proxy, nil
	}
}

func upstreamSecret(u *control.Upstream) []redact.Secret {
	if u == nil || u.Password == "" {
		return nil
	}
	return []redact.Secret{{Name: "upstream", Value: u.Password}}
}

func ruleTexts(rules []config.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = string(r)
	}
	return out
}

// proxyEnviron are the variables by which the person's programs, and so the proxy, find the certificates of the host.
func proxyEnviron(host wallspec.Host) []string {
	var out []string
	for _, entry := range host.Environ {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains([]string{"SSL_CERT_FILE", "SSL_CERT_DIR"}, name) {
			out = append(out, entry)
		}
	}
	return out
}

// summariseNet tells what was refused, each with the smallest flag that would allow it.
func (x *execution) summariseNet() {
	const most = 10
	if watched := x.report.Watching; slices.Contains(watched, string(flow.Proxy)) && !slices.Contains(watched, string(flow.Transparent)) {
		x.note("note", "programs that ignore the proxy variables reach nothing: this kernel has no nf_tables with NAT, or its modules are not loaded",
			"as root: modprobe -a nft_chain_nat nft_redir; coworker sandbox verify --net allowlist tells what is missing")
	}
	n, told := 0, map[string]bool{}
	for _, d := range x.report.Denials {
		ofKernel := d.Source == string(enforce.SourceEBPF) && d.Needed != "" // the rest of them are in the report
		if !ofKernel && d.Source != "proxy" && d.Source != "dns" && d.Source != "transparent" || told[d.What+d.Needed] {
			continue // what was tried on two ways is one line
		}
		told[d.What+d.Needed] = true
		if n++; n <= most {
			hint := ""
			switch {
			case d.Needed != "" && d.Source == string(flow.DNS): // a question has no port
				hint = fmt.Sprintf("%s allows it on port 443, %s:PORT on another", d.Needed, d.Needed)
			case d.Needed != "":
				hint = d.Needed + " allows it"
			}
			x.note("denied", fmt.Sprintf("%s: %s", d.Wall, d.What), hint)
		}
	}
	for _, r := range x.report.Egress {
		if r.Verdict == flow.Allow && r.Broken != "" && r.BytesIn == 0 {
			x.note("note", fmt.Sprintf("%s was allowed and not reached: %s", visible(hostPort(r.Host, r.Port)), visible(r.Broken)), "")
		}
	}
	if x.report.EgressMore > 0 {
		x.note("note", fmt.Sprintf("%d connections went to more places than the report lists", x.report.EgressMore), "coworker net log shows them")
	}
	if n > most {
		x.note("denied", fmt.Sprintf("and %d more", n-most), "coworker net log shows all of them")
	}
}

// network takes over what left the session, and what was refused, once the proxy has said its last.
func (x *execution) network() {
	list, more := x.session.Egress()
	x.report.Egress, x.report.EgressMore = egressReports(list), more
	x.report.Denials = append(x.report.Denials, x.session.Refusals()...)
}

// recordRules puts on record what the session may reach, groups taken apart.
func (x *execution) recordRules() error {
	if x.egress == nil {
		return nil
	}
	c := x.egress.Config
	rules := slices.Clone(c.Allow)
	for _, r := range c.Deny {
		rules = append(rules, "deny "+r)
	}
	for _, h := range c.Hosts {
		if h.Secret != "" {
			rules = append(rules, fmt.Sprintf("credential %s for %s%s", h.Secret, hostPort(h.Host, h.Port), h.Path))
		}
	}
	a, id := x.session.Attestation()
	return x.record.Record(context.WithoutCancel(x.stop.ctx), id, session.Event{
		Stage: "rules", Status: string(x.plan.Spec.Net), Args: rules, Level: a.Level, Walls: a.Walls,
	})
}
