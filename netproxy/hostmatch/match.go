package hostmatch

import (
	"fmt"

	"coworker/netproxy/addrclass"
)

// Verdict is the answer of a match. The zero Verdict denies.
type Verdict uint8

// Deny and Allow are the verdicts.
const (
	Deny Verdict = iota
	Allow
)

func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Rules is what a session may reach.
type Rules struct {
	Allow, Deny []Rule
	// Open allows every public host and port (--net open). Deny rules and address checks still hold.
	Open bool
}

// Decision is the answer for one host and port. Allow is not yet a permission to dial: each resolved address still has to
// pass addrclass.Allowed with Grant.
type Decision struct {
	Verdict Verdict
	Rule    string // the rule that decided; empty if none matched
	Raw     bool   // bytes are relayed without inspection
	Grant   addrclass.Grant
	Reason  string
	Needed  string // the smallest rule that would allow it; empty if none can
}

// ParseRules reads whole lists. The first entry that is no rule refuses all of them: a list that is half understood is
// not what the person wrote.
func ParseRules(allow, deny []string) (Rules, error) {
	var out Rules
	for i, s := range allow {
		r, err := ParseAllow(s)
		if err != nil {
			return Rules{}, fmt.Errorf("allow rule %d: %w", i+1, err)
		}
		out.Allow = append(out.Allow, r)
	}
	for i, s := range deny {
		r, err := ParseDeny(s)
		if err != nil {
			return Rules{}, fmt.Errorf("deny rule %d: %w", i+1, err)
		}
		out.Deny = append(out.Deny, r)
	}
	return out, nil
}

// Match decides on a host and port. Deny rules beat allow rules, however wide or narrow. Of the allow rules the most
// specific decide; among equals inspection beats raw, and their networks add up.
func Match(rules Rules, h Host, port uint16) Decision {
	if d, refused := rules.refuse(h, port); refused {
		return d
	}
	best, listed := rules.best(h, port)
	switch {
	case best != nil:
		return rules.grant(best, h, port)
	case rules.Open && h.name == HostService:
	case rules.Open:
		return Decision{Verdict: Allow, Rule: "--net open", Raw: isRaw(port), Grant: addrclass.Grant{Public: true}, Reason: "every public host is allowed"}
	case listed:
		return Decision{Reason: fmt.Sprintf("%s is listed, but not with port %d", h, port), Needed: suggest(h, port)}
	}
	d := Decision{Reason: fmt.Sprintf("no rule allows %s", h.Authority(port)), Needed: suggest(h, port)}
	if a, ok := h.Addr(); ok {
		if err := addrclass.Nameable(a); err != nil {
			d.Reason, d.Needed = err.Error(), ""
		}
	}
	return d
}

// MatchName decides whether a name may be resolved: a question is already a message to whoever runs the zone, so only
// names that some rule allows with some port are answered.
func MatchName(rules Rules, h Host) Decision {
	if _, literal := h.Addr(); literal || h.IsZero() {
		return Decision{Reason: "no name to resolve"}
	}
	if d, refused := rules.refuse(h, 0); refused {
		return d
	}
	for _, r := range rules.Allow {
		if !r.covers(h) {
			continue
		}
		if _, refused := rules.refuse(h, r.port); !refused {
			return Decision{Verdict: Allow, Rule: r.text, Reason: "the name is listed"}
		}
	}
	if rules.Open && h.name != HostService {
		return Decision{Verdict: Allow, Rule: "--net open", Reason: "every public host is allowed"}
	}
	return Decision{Reason: fmt.Sprintf("no rule allows %s", h), Needed: suggest(h, defaultPort)}
}

// refuse is what no allow rule can lift. Port zero asks about the name on every port.
func (rules Rules) refuse(h Host, port uint16) (Decision, bool) {
	if h.IsZero() {
		return Decision{Reason: "no host"}, true
	}
	for _, r := range rules.Deny {
		if r.covers(h) && (r.port == 0 || r.port == port) {
			return Decision{Rule: r.text, Reason: fmt.Sprintf("denied by the rule %s", Quote(r.text))}, true
		}
	}
	if isLocalhost(h.name) {
		d := Decision{Reason: fmt.Sprintf("%s is loopback, which is reached only as %s", h, HostService)}
		if port != 0 {
			d.Needed = suggest(Host{name: HostService}, port)
		}
		return d, true
	}
	return Decision{}, false
}

// best finds the most specific allow rule for h and port; listed says that some rule covers h with another port.
func (rules Rules) best(h Host, port uint16) (best *Rule, listed bool) {
	for i := range rules.Allow {
		r := &rules.Allow[i]
		if !r.covers(h) {
			continue
		}
		listed = true
		if r.port != port {
			continue
		}
		if best == nil || r.rank() > best.rank() || r.rank() == best.rank() && best.raw && !r.raw {
			best = r
		}
	}
	return best, listed
}

func (rules Rules) grant(best *Rule, h Host, port uint16) Decision {
	d := Decision{Verdict: Allow, Rule: best.text, Raw: best.raw || isRaw(port), Reason: fmt.Sprintf("allowed by the rule %s", Quote(best.text))}
	if h.name == HostService {
		d.Grant.HostService = true
		return d
	}
	if a, ok := h.Addr(); ok {
		d.Grant.Literal = a
		return d
	}
	for _, r := range rules.Allow {
		if !r.covers(h) || r.port != port || r.rank() != best.rank() || r.raw != best.raw {
			continue
		}
		if r.cidr.IsValid() {
			d.Grant.Ranges = append(d.Grant.Ranges, r.cidr)
		} else {
			d.Grant.Public = true
		}
	}
	return d
}

// isRaw: HTTP is spoken on 80 and TLS on 443; what other ports speak is not known, so nothing is inspected there.
func isRaw(port uint16) bool { return port != 80 && port != 443 }
