package hostmatch

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"coworker/netproxy/addrclass"
)

const defaultPort = 443

// Rule is one entry of an allow or deny list. It is made by ParseAllow or ParseDeny.
type Rule struct {
	text   string
	host   Host   // exact name or literal; zero for a wildcard
	suffix string // ".example.com" for *.example.com; "." for the star of a deny rule
	port   uint16 // zero: every port (deny rules only)
	cidr   netip.Prefix
	raw    bool
}

// String is the rule as it was written.
func (r Rule) String() string { return r.text }

// Literal is the address that the rule consists of, if it is no name.
func (r Rule) Literal() (netip.Addr, bool) { return r.host.Addr() }

// ParseAllow reads HOST[:PORT][=CIDR][+raw]. The port is 443 if none is written. HOST is a name, *.NAME (one or more
// labels below NAME, never NAME itself and never an address), or an address, IPv6 in brackets. CIDR says in which network
// the name lives, and is the only way to a private or other special-purpose network. +raw lifts the inspection of bytes.
func ParseAllow(s string) (Rule, error) {
	r, err := parse(s, false)
	if err == nil && r.port == 0 {
		r.port = defaultPort
	}
	return r, err
}

// ParseDeny reads HOST[:PORT]. Without a port every port is denied. A star alone denies everything, and a wildcard may be
// as wide as *.com: a deny rule that is too wide is no hole.
func ParseDeny(s string) (Rule, error) { return parse(s, true) }

func parse(s string, deny bool) (Rule, error) {
	r := Rule{text: s}
	if strings.Trim(s, " \t") == "" {
		return Rule{}, &SyntaxError{s, 0, "empty rule"}
	}
	if err := checkControls(s); err != nil {
		return Rule{}, err
	}
	rest, err := r.cutOptions(s, deny)
	if err != nil {
		return Rule{}, err
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		return Rule{}, &SyntaxError{s, at, "a rule holds a host, not a URL or a path"}
	}
	if at := strings.IndexByte(rest, '@'); at >= 0 {
		return Rule{}, &SyntaxError{s, at, "user information before a host"}
	}
	host, port, at, err := splitPort(rest)
	if err != nil {
		return Rule{}, err
	}
	if at >= 0 {
		if r.port, err = parsePort(s, port, at+1); err != nil {
			return Rule{}, err
		}
	}
	if err := r.setHost(host, deny); err != nil {
		return Rule{}, err
	}
	if !deny {
		if err := r.checkScope(); err != nil {
			return Rule{}, &SyntaxError{s, 0, err.Error()}
		}
	}
	return r, nil
}

// cutOptions takes "+raw" and "=CIDR" off the end and returns what is before them.
func (r *Rule) cutOptions(s string, deny bool) (string, error) {
	rest, option, found := strings.Cut(s, "+")
	if found && (option != "raw" || deny) {
		return "", &SyntaxError{s, len(rest), `the only option is "+raw", at the end of an allow rule`}
	}
	r.raw = found
	head, cidr, found := strings.Cut(rest, "=")
	if !found {
		return rest, nil
	}
	if deny {
		return "", &SyntaxError{s, len(head), "a deny rule names no network"}
	}
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", &SyntaxError{s, len(head) + 1, fmt.Sprintf("%s is no network in CIDR form", Quote(cidr))}
	}
	if err := addrclass.NameableRange(p); err != nil {
		return "", &SyntaxError{s, len(head) + 1, err.Error()}
	}
	r.cidr = p
	return head, nil
}

func (r *Rule) setHost(host string, deny bool) error {
	below, wild := strings.CutPrefix(host, "*.")
	if host == "*" {
		if !deny {
			return &SyntaxError{r.text, 0, "a star alone allows everything; that is --net open, not a rule"}
		}
		r.suffix = "."
		return nil
	}
	if star := strings.IndexByte(below, '*'); star >= 0 {
		return &SyntaxError{r.text, star, "a star stands only at the beginning, as *.NAME"}
	}
	ascii := below
	if !isASCII(below) {
		var err error
		if ascii, err = toALabels(below); err != nil {
			return err
		}
	}
	h, err := ParseHost(ascii)
	if err != nil {
		return err
	}
	if !wild {
		r.host = h
		return nil
	}
	if h.addr.IsValid() {
		return &SyntaxError{r.text, 2, "a wildcard below an address"}
	}
	if !deny && tooWide(h.name) {
		return &SyntaxError{r.text, 0, fmt.Sprintf("*.%s covers names of unrelated owners; name the hosts", h.name)}
	}
	r.suffix = "." + h.name
	return nil
}

// tooWide refuses wildcards over a registry. Without the public suffix list, which changes monthly and would have to be
// trusted, it knows single labels and the usual second level of country domains (co.uk, com.au).
func tooWide(name string) bool {
	second, top, found := strings.Cut(name, ".")
	if !found {
		return true
	}
	if len(top) != 2 || strings.Contains(top, ".") {
		return false
	}
	switch second {
	case "ac", "co", "com", "edu", "go", "gob", "gov", "ltd", "mil", "ne", "net", "nom", "or", "org", "plc", "sch":
		return true
	}
	return false
}

// checkScope refuses allow rules for places that no rule opens, when the rule is read and not at the first connection.
func (r *Rule) checkScope() error {
	if a, ok := r.host.Addr(); ok {
		if r.cidr.IsValid() {
			return fmt.Errorf("an address needs no network")
		}
		return addrclass.Nameable(a)
	}
	name := r.host.name + r.suffix
	switch {
	case isLocalhost(strings.TrimPrefix(name, ".")):
		return fmt.Errorf("loopback of the machine outside is the rule %s:PORT; servers inside need no rule", HostService)
	case r.host.name == HostService && r.cidr.IsValid():
		return fmt.Errorf("%s is loopback and names no network", HostService)
	case r.suffix != "" && strings.HasSuffix("."+HostService, r.suffix):
		return fmt.Errorf("a wildcard does not cover %s; name it with its port", HostService)
	}
	return nil
}

// isLocalhost follows RFC 6761 section 6.3: resolvers may answer these names with loopback without asking anybody.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// covers says that r is about h, whatever the port.
func (r Rule) covers(h Host) bool {
	switch {
	case r.suffix == ".":
		return true
	case r.suffix != "":
		// The suffix begins with a dot, so it ends at a label boundary; h has more than the suffix, so the apex is out.
		return h.name != HostService && len(h.name) > len(r.suffix) && strings.HasSuffix(h.name, r.suffix)
	}
	return r.host == h
}

// rank orders rules that cover one host: literals and exact names first, then the longer suffix.
func (r Rule) rank() int {
	if r.suffix == "" {
		return maxName + 2
	}
	return len(r.suffix)
}

// suggest is the smallest rule that would allow h and port.
func suggest(h Host, port uint16) string {
	if port == defaultPort {
		return h.Bracketed()
	}
	return h.Bracketed() + ":" + strconv.Itoa(int(port))
}
