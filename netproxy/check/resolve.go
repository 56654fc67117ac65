package check

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"coworker/netproxy/addrclass"
	"coworker/netproxy/hostmatch"
)

const maxAlias = 8

// addresses judges where a connection would go. A literal is its own answer. A name without a DNS segment is taken to have
// public addresses. Every lookup of the row is one more connection: the proxy resolves once for each and dials what it
// checked, so an answer that changes is judged when the next connection comes.
func (s *script) addresses(h hostmatch.Host, grant addrclass.Grant) error {
	if a, ok := h.Addr(); ok {
		return allowed(a, grant)
	}
	if grant.HostService {
		return allowed(netip.AddrFrom4([4]byte{127, 0, 0, 1}), grant)
	}
	for _, lookup := range s.lookups(h) {
		addrs, err := s.answers(lookup, 0)
		if err != nil {
			return fmt.Errorf("%s is not resolved: %w", h, err)
		}
		for _, a := range addrs {
			if err := allowed(a, grant); err != nil {
				return fmt.Errorf("%s: %w", h, err)
			}
		}
	}
	return nil
}

func allowed(a netip.Addr, g addrclass.Grant) error {
	if ok, reason := addrclass.Allowed(a, g, nil); !ok {
		return errors.New(reason)
	}
	return nil
}

// lookups lists the answers for h in the order of the lookups.
func (s *script) lookups(h hostmatch.Host) []string {
	var out []string
	for _, d := range s.dns {
		name, answers, _ := strings.Cut(d, "=")
		if n, err := hostmatch.ParseName(strings.TrimSpace(name)); err == nil && n == h {
			out = append(out, strings.Split(answers, " then ")...)
		}
	}
	return out
}

// answers reads one answer: addresses and aliases. The alias itself is not judged by name, since whoever runs the zone may
// point where they like; the address at its end is.
func (s *script) answers(lookup string, depth int) ([]netip.Addr, error) {
	if depth > maxAlias {
		return nil, fmt.Errorf("more than %d aliases", maxAlias)
	}
	var out []netip.Addr
	for part := range strings.SplitSeq(lookup, ",") {
		part = strings.TrimSpace(part)
		if alias, ok := strings.CutPrefix(part, "CNAME "); ok {
			more, err := s.alias(alias, depth)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		a, err := netip.ParseAddr(part)
		if err != nil {
			return nil, fmt.Errorf("answer %s holds no address", hostmatch.Quote(part))
		}
		out = append(out, a)
	}
	return out, nil
}

// alias reads "target -> answer", or "target" with an answer elsewhere in the row.
func (s *script) alias(text string, depth int) ([]netip.Addr, error) {
	name, rest, direct := strings.Cut(text, "->")
	target, err := hostmatch.ParseName(strings.TrimSpace(name))
	if err != nil {
		return nil, fmt.Errorf("alias %w", err)
	}
	if direct {
		next := strings.TrimSpace(rest)
		if strings.Contains(next, "->") { // a chain, with CNAME repeated or not
			next = "CNAME " + strings.TrimPrefix(next, "CNAME ")
		}
		return s.answers(next, depth+1)
	}
	var out []netip.Addr
	for _, lookup := range s.lookups(target) {
		more, err := s.answers(lookup, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("alias %s has no address", target)
	}
	return out, nil
}
