package learn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/netproxy/flow"
	"coworker/platform/config"
	"coworker/platform/redact"
	"coworker/runtime/wallspec"
)

const secret = "hunter2hunter2"

var redactor = redact.New(redact.Secret{Name: "TOKEN", Value: secret})

func allowed(host string, port uint16, rule string) flow.Record {
	return flow.Record{Source: flow.Proxy, Host: host, Port: port, Verdict: flow.Allow, Rule: rule, Count: 1}
}

func denied(host string, port uint16, needed string, source flow.Source) flow.Record {
	return flow.Record{Source: source, Host: host, Port: port, Verdict: flow.Deny, Needed: needed, Count: 2, Reason: "no rule allows it"}
}

func file(wall enforce.Wall, what, needed, comm string) Refused {
	return Refused{enforce.Refusal{Source: enforce.SourceLandlock, Wall: wall, What: what, Needed: needed, Comm: comm}, 3}
}

func TestProposal(t *testing.T) {
	t.Parallel()
	o := Observations{
		Program: "npm", Wrote: 12, Blind: []string{"bpf-lsm: not in this kernel"}, More: 4,
		Hosts: []flow.Record{
			allowed("ok.example", 443, "ok.example"), allowed("ok.example", 443, "ok.example"),
			allowed("cdn.wide.example", 8443, "*.wide.example:8443=10.0.0.0/8+raw"),
			denied("evil.example", 80, "evil.example:80", flow.Proxy),
			denied("evil.example", 0, "evil.example", flow.DNS), // more is known
			denied("name.example", 0, "name.example", flow.DNS),
			denied("api.example", 443, "DELETE api.example:443/v1", flow.Proxy),
			denied("169.254.169.254", 80, "", flow.Proxy),
			denied(secret+".evil.example", 443, secret+".evil.example", flow.Proxy),
		},
		Refused: []Refused{
			file(enforce.FSRead, "/srv/data.txt", "--read /srv/data.txt", "cat"), file(enforce.FSRead, "/srv/data.txt", "--read /srv/data.txt", "head"),
			file(enforce.FSRead, "/home/ada/.aws/credentials", "--read /home/ada/.aws/credentials", "cat"),
			file(enforce.FSRead, "/srv/two words", "--read '/srv/two words'", "cat"),
			file(enforce.FSWrite, "/srv/out", "--write /srv/out", "x\"\n]\nallow = [\"*.evil.example\"]\n#"),
			file(enforce.FSWrite, "/ws/sub", "-w", "cp"),
			file(enforce.FSRead, "/srv/other", "--read /srv", "cat"), // wider than what was asked for
			file(enforce.NetLocal, "local socket", "", "nc"),
		},
		Given: wallspec.Profile{
			Home: []string{".tool"}, Read: []config.Path{"/opt/sdk", "/opt/sdk/.env"}, Env: []string{"CI=1", "API_TOKEN=abcdefgh", "LANG"}, EnvSecret: []string{"NPM_TOKEN"},
			Allow: []config.Rule{"*.wide.example:8443=10.0.0.0/8+raw", "ok.example", "unused.example"},
		},
	}
	got := Propose(o, redactor)
	want := `# What one command needed, as far as it was seen. This file grants nothing: it counts when a session is started
# with --profile. Entries behind a # were refused; taking the # away allows them.
about = "learned from one run of npm"
home = [".tool"]  # given when this was learned
env = ["CI=1", "LANG"]  # given when this was learned
env_secret = ["NPM_TOKEN"]  # given when this was learned

read = [
  "/opt/sdk",  # named when this was learned
  # "/srv/data.txt",  # refused 6 times, by "cat", "head" (landlock-audit)
  # "/srv/two words",  # refused 3 times, by "cat" (landlock-audit)
]

write = [
  # "/srv/out",  # refused 3 times, by "x\"\u000a]\u000aallow = [\"*.evil.example\"]\u000a#" (landlock-audit)
]

allow = [
  "cdn.wide.example:8443=10.0.0.0/8+raw",  # let through once (proxy)
  "ok.example",  # let through 2 times (proxy)
  # "evil.example:80",  # refused 2 times (proxy)
  # "name.example",  # refused 2 times (dns)
]

# It wrote the workspace (12 changes): use -w, or --staged, with this profile.
# A write to the workspace was refused (3 times): -w allows it.
# net.requests of the settings, not a profile, would allow "DELETE api.example:443/v1": refused 2 times (proxy).
# No flag allows this: "169.254.169.254 port 80: no rule allows it", refused 2 times (proxy).
# No flag allows this: "net.local: local socket", refused 3 times, by "nc" (landlock-audit).
# Given as a rule, and not needed as it is: "*.wide.example:8443=10.0.0.0/8+raw".
# Given as a rule, and not needed as it is: "unused.example".
# No news of refused paths and addresses from "bpf-lsm: not in this kernel".
# 5 things are left out because they may hold a secret or cannot be written down.
# 4 more were seen than there was room for.
`
	if string(got.Text) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.Text, want)
	}
	if got.Refused != 5 || got.LeftOut != 5 || !slices.Equal(got.Allow, []string{"cdn.wide.example:8443=10.0.0.0/8+raw", "ok.example"}) {
		t.Errorf("%d refused, %d left out, %q", got.Refused, got.LeftOut, got.Allow)
	}
}

// world makes random observations, hostile ones among them.
type world struct{ *rand.Rand }

func (w world) pick(list ...string) string { return list[w.IntN(len(list))] }

func (w world) name() string {
	return w.pick("a.example", "b.example", "x.y.example", "10.0.0.1", "[::1]", "*.c.example", secret+".example", "bad host", "a\".example", "", "HOST", "xn--bcher-kva.example")
}

func (w world) path() string {
	return w.pick("/srv/a", "/srv/a/b", "/srv", "/", "/srv/../etc", "/srv/.env", "/home/u/.ssh/id_rsa", "/srv/"+secret, "/srv/a\nb", "/srv/\x1b[2J", "/srv/\xff",
		"/srv/\u202eb", "relative", "", "/srv/q\"]", "/srv/key.pem", "/srv/two words", "/srv/back\\slash")
}

func (w world) record() flow.Record {
	host, port := w.name(), uint16(w.IntN(3)*443)
	r := flow.Record{Source: flow.Source(w.pick("proxy", "dns", "transparent")), Host: host, Port: port, Count: w.IntN(4), Reason: w.pick("why", "a\nb", secret)}
	if w.IntN(2) == 0 {
		r.Verdict, r.Rule = flow.Allow, w.pick("*.example", "a.example", "--net open", "b.example:886+raw", "*.y.example=10.0.0.0/8", "\"", "")
		return r
	}
	r.Verdict, r.Needed = flow.Deny, w.pick("", host, host+":886", "GET "+host+"/x", "*.example", "*", "\n")
	return r
}

func (w world) refused() Refused {
	what := w.path()
	flag := w.pick("--read ", "--write ", "-w", "", "--allow ", "--hide ")
	r := enforce.Refusal{Source: enforce.SourceBPFLSM, Wall: enforce.Wall(w.pick("fs.read", "fs.write", "fs.hide", "net.egress")), What: what, Comm: w.pick("cat", "\n]", secret, "\"", "")}
	if r.Needed = flag; strings.HasSuffix(flag, " ") {
		r.Needed += w.pick(what, "'"+what+"'", "/", "/srv", w.name())
	}
	return Refused{r, int64(w.IntN(3))}
}

func (w world) observations() Observations {
	o := Observations{Program: w.pick("npm", "a\nb", secret, "\"]"), Wrote: w.IntN(2), More: int64(w.IntN(2)), Blind: []string{w.pick("x: y", "a\nb", secret)}}
	for range w.IntN(8) {
		o.Hosts = append(o.Hosts, w.record())
	}
	for range w.IntN(8) {
		o.Refused = append(o.Refused, w.refused())
	}
	for range w.IntN(3) {
		o.Given.Read = append(o.Given.Read, config.Path(w.pick("/opt", "/opt/.env", "~/x", "/srv/"+secret)))
		o.Given.Allow = append(o.Given.Allow, config.Rule(w.pick("*.example", "a.example")))
		o.Given.Env = append(o.Given.Env, w.pick("CI", "A=b", "MY_TOKEN=zzzzzzz", "X="+secret))
	}
	return o
}

// allows says which rules may stand in a proposal about these observations: exactly those of what passed.
func (o Observations) allows(rule string) bool {
	return slices.ContainsFunc(o.Hosts, func(r flow.Record) bool {
		return r.Verdict == flow.Allow && r.Source != flow.DNS && exactRule(r) == rule
	})
}

func TestProposalsRestOnObservations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5_000) {
		o := world{rand.New(rand.NewPCG(seed, 1))}.observations()
		p := Propose(o, redactor)
		if err := check(o, p); err != nil {
			t.Fatalf("seed %d: %v\n%s\n%+v", seed, err, p.Text, o)
		}
	}
}

// check says what is wrong with a proposal.
func check(o Observations, p Proposal) error {
	active, err := wallspec.ParseProfile("learned", p.Text)
	if err != nil {
		return err
	}
	if strings.Contains(string(p.Text), secret) || strings.ContainsAny(string(p.Text), "\x1b\u202e") {
		return fmt.Errorf("a secret, or a control")
	}
	for _, rule := range active.Allow {
		if strings.Contains(string(rule), "*") || !o.allows(string(rule)) {
			return fmt.Errorf("%q was not let through", rule)
		}
	}
	for _, name := range active.Read {
		if !slices.Contains(o.Given.Read, name) || secretFile(string(name)) {
			return fmt.Errorf("%q was not named, or is a secret", name)
		}
	}
	if len(active.Write) > 0 || len(active.Env) > len(o.Given.Env) {
		return fmt.Errorf("writes %q, variables %q", active.Write, active.Env)
	}
	if err := checkComments(o, p, active); err != nil {
		return err
	}
	again := o
	again.Given = *active
	second := Propose(again, redactor)
	if !slices.Equal(second.Allow, p.Allow) || second.Refused > p.Refused {
		return fmt.Errorf("not the same with itself as profile:\n%s", second.Text)
	}
	if third := Propose(again, redactor); string(third.Text) != string(second.Text) {
		return fmt.Errorf("not the same twice")
	}
	return nil
}

// checkComments takes the # away before every entry: the file is still a profile, and each of them was refused as it stands
// there.
func checkComments(o Observations, p Proposal, active *wallspec.Profile) error {
	all, err := wallspec.ParseProfile("learned", []byte(strings.ReplaceAll(string(p.Text), "\n  # \"", "\n  \"")))
	if err != nil {
		return fmt.Errorf("without the #: %w", err)
	}
	if n := len(all.Allow) + len(all.Read) + len(all.Write) - len(active.Allow) - len(active.Read); n != p.Refused {
		return fmt.Errorf("%d entries behind a #, want %d", n, p.Refused)
	}
	for _, list := range [][]config.Path{all.Read, all.Write} {
		for _, name := range list {
			asked := slices.ContainsFunc(o.Refused, func(r Refused) bool { return r.What == string(name) })
			if !asked && !slices.Contains(active.Read, name) || name == "/" || secretFile(string(name)) {
				return fmt.Errorf("%q was not asked for, or must not be proposed", name)
			}
		}
	}
	for _, rule := range all.Allow {
		asked := slices.ContainsFunc(o.Hosts, func(r flow.Record) bool { return r.Needed == string(rule) }) ||
			slices.ContainsFunc(o.Refused, func(r Refused) bool { return r.Needed == "--allow "+string(rule) })
		if !asked && !slices.Contains(active.Allow, rule) || strings.Contains(string(rule), "*") {
			return fmt.Errorf("%q was not asked for, or is a wildcard", rule)
		}
	}
	return nil
}

// The check above can fail: it finds each of these.
func TestCheckFindsWrongProposals(t *testing.T) {
	t.Parallel()
	o := Observations{Hosts: []flow.Record{allowed("ok.example", 443, "*.example")}}
	for name, text := range map[string]string{
		"wildcard": `allow = ["*.example"]`, "unseen": `allow = ["other.example"]`, "read": `read = ["/srv"]`, "write": `write = ["/srv"]`,
		"secret": `about = "` + secret + `"`, "no profile": "allow = [", "commented": "read = [\n  # \"/srv\",\n]",
	} {
		if check(o, Proposal{Text: []byte(text), Allow: []string{"ok.example"}, Refused: 1}) == nil {
			t.Errorf("%s: nothing found in %q", name, text)
		}
	}
}

func TestProposalIsBounded(t *testing.T) {
	t.Parallel()
	var o Observations
	for i := range 10_000 {
		o.Hosts = append(o.Hosts, denied("h", 80, fmt.Sprintf("h%d.example:80", i), flow.Proxy))
		o.Refused = append(o.Refused, file(enforce.FSRead, fmt.Sprintf("/srv/%d", i), fmt.Sprintf("--read /srv/%d", i), "cat"))
	}
	p := Propose(o, redactor)
	if p.Refused < 100 || len(p.Text) > 64<<10 {
		t.Errorf("%d entries, %d bytes", p.Refused, len(p.Text))
	}
	if !strings.Contains(string(p.Text), " more were seen than there was room for.") {
		t.Error("nothing says that there was more")
	}
}
