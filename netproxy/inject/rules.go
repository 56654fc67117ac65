package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
)

// Bounds of what a session may configure.
const (
	maxRules   = 512
	maxMethods = 32
	maxValue   = 4 << 10 // octets; access tokens in the form of a JWT reach 2 KiB
	maxNodes   = 2 << 20 // of the filters, 24 octets each: room for about a hundred credentials of 1 KiB
	// minSecret is the length below which a credential is refused: it would be found in text that is none of it, and
	// guessed where the filter puts stars.
	minSecret = 8
)

// Rules say which hosts are opened, what may be asked there and what is added.
type Rules struct{ hosts map[origin]*hostRules }

type origin struct {
	host hostmatch.Host
	port uint16
}

type hostRules struct {
	rules   []rule // longest path first
	paths   bool   // some rule has a path
	limits  bool   // some rule is more than a credential: what no rule covers is refused
	methods bool   // some rule lists methods
	filter  *automaton
	fields  []string // that credentials of this host are sent in
}

type rule struct {
	methods []string // nil: all
	path    string   // "": all
	secret  string
	header  string
	value   Value
}

// Decision is the answer for one request. Without Allow it is answered with 403 and Reason, and never sent.
type Decision struct {
	Allow  bool
	Rule   string // the rule that decided, for records; empty if none covers the request
	Reason string // for a person; hostile text in it is escaped and bounded
	Needed string // what a rule would have to say to allow it; empty if none can
	Secret string // name of the credential that is added; empty: none
	Header string
	Value  Value

	host *hostRules
}

// ParseRules reads the rules of a session. The first that is not understood refuses all of them. No error holds a value.
func ParseRules(list []control.HostRule) (*Rules, error) {
	if len(list) > maxRules {
		return nil, fmt.Errorf("%d rules for opened hosts, more than %d", len(list), maxRules)
	}
	out := &Rules{hosts: map[origin]*hostRules{}}
	for i, text := range list {
		at, r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("host rule %d (%s): %w", i+1, hostmatch.Quote(text.Host), err)
		}
		if out.hosts[at] == nil {
			out.hosts[at] = &hostRules{}
		}
		if err := out.hosts[at].add(r); err != nil {
			return nil, fmt.Errorf("host rule %d (%s): %w", i+1, hostmatch.Quote(text.Host), err)
		}
	}
	nodes := 0
	for at, h := range out.hosts {
		if h.filter = newAutomaton(h.values()); h.filter == nil {
			continue
		}
		if nodes += len(h.filter.nodes); nodes > maxNodes {
			return nil, fmt.Errorf("the credentials of all hosts up to %s have too many octets for the filter of answers", at.host)
		}
	}
	return out, nil
}

func parseRule(text control.HostRule) (origin, rule, error) {
	fail := func(err error) (origin, rule, error) { return origin{}, rule{}, err }
	host, err := hostmatch.ParseName(text.Host)
	switch {
	case err != nil:
		return fail(err)
	case text.Port == 0:
		return fail(errors.New("no port"))
	case text.Port == 80:
		return fail(errors.New("port 80 is clear text, which is neither opened nor given a credential"))
	}
	r := rule{secret: text.Secret, header: text.Header, value: newValue(text.Value)}
	if r.methods, err = parseMethods(text.Methods); err != nil {
		return fail(err)
	}
	if r.path, err = parsePrefix(text.Path); err != nil {
		return fail(err)
	}
	if err := r.checkCredential(); err != nil {
		return fail(err)
	}
	return origin{host, text.Port}, r, nil
}

// parseMethods reads methods in capitals, the only form in which request.Parse gives them.
func parseMethods(list []string) ([]string, error) {
	if len(list) > maxMethods {
		return nil, fmt.Errorf("%d methods, more than %d", len(list), maxMethods)
	}
	for _, m := range list {
		switch {
		case m == "" || len(m) > 32 || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || m[0] == '-':
			return nil, fmt.Errorf("%s is no method in capitals", hostmatch.Quote(m))
		case m == "CONNECT" || m == "TRACE" || m == "TRACK":
			return nil, fmt.Errorf("the method %s is never sent to an opened host", m)
		}
	}
	return slices.Clone(list), nil
}

// forbidden are fields that no credential is sent in. Those of framing and of the connection make another request of the
// bytes that follow; cookies are renewed through Set-Cookie, which would carry the credential's successor inside.
var forbidden = []string{
	"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
	"proxy-connection", "proxy-authenticate", "proxy-authorization", "proxy-authentication-info", "http2-settings",
	"cookie", "set-cookie", "content-type", "content-encoding", "accept-encoding", "range", "if-range",
}

// checkCredential wants all three parts or none.
func (r *rule) checkCredential() error {
	if r.header == "" && r.value.IsZero() && r.secret == "" {
		return nil
	}
	switch name := strings.ToLower(r.header); {
	case r.header == "" || r.value.IsZero() || r.secret == "":
		return errors.New("a credential has a name, a header and a value; one of them is missing")
	case strings.Trim(r.secret, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@") != "" || len(r.secret) > 128:
		return fmt.Errorf("%s is no name of a credential", hostmatch.Quote(r.secret))
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(name) > 64:
		return fmt.Errorf("%s is no header for a credential: letters, digits and hyphens only", hostmatch.Quote(r.header))
	case slices.Contains(forbidden, name) || strings.HasPrefix(name, "sec-websocket-"):
		return fmt.Errorf("the header %s carries no credential", name)
	}
	return checkValue(r.value.reveal())
}

// checkValue never quotes what it judges.
func checkValue(v string) error {
	if len(v) > maxValue {
		return fmt.Errorf("a credential of %d octets, more than %d", len(v), maxValue)
	}
	for i := range len(v) {
		if c := v[i]; c < ' ' || c > '~' {
			return fmt.Errorf("a credential with an octet that is no visible ASCII (octet %d)", i)
		}
	}
	if strings.Trim(v, " ") != v {
		return errors.New("a credential that begins or ends with a space")
	}
	if n := len(secretPart(v)); n < minSecret {
		return fmt.Errorf("a credential of %d octets is too short to be kept out of answers; %d are needed", n, minSecret)
	}
	return nil
}

// add keeps the longest path first. Two rules for one path that share a method would leave open which one decides.
func (h *hostRules) add(r rule) error {
	for _, other := range h.rules {
		switch {
		case other.path != r.path && strings.EqualFold(other.path, r.path):
			return fmt.Errorf("the path %s differs from that of another rule in upper and lower case only", hostmatch.Quote(r.path))
		case other.path == r.path && overlap(other.methods, r.methods):
			return fmt.Errorf("a second rule for the path %s with the same method", hostmatch.Quote(r.shownPath()))
		}
	}
	h.rules = append(h.rules, r)
	slices.SortStableFunc(h.rules, func(a, b rule) int { return len(b.path) - len(a.path) })
	h.paths = h.paths || r.path != ""
	h.methods = h.methods || r.methods != nil
	h.limits = h.limits || r.methods != nil || r.secret == ""
	if r.secret != "" && !slices.Contains(h.fields, strings.ToLower(r.header)) {
		h.fields = append(h.fields, strings.ToLower(r.header))
	}
	return nil
}

func overlap(a, b []string) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(m string) bool { return slices.Contains(b, m) })
}

func (h *hostRules) values() []string {
	var out []string
	for _, r := range h.rules {
		if !r.value.IsZero() {
			out = append(out, r.value.reveal())
		}
	}
	return out
}

func (r *rule) allows(method string) bool {
	return r.methods == nil || slices.Contains(r.methods, method)
}

func (r *rule) shownPath() string {
	if r.path == "" {
		return "/"
	}
	return r.path
}

// Opens says whether connections to host and port are opened.
func (r *Rules) Opens(host hostmatch.Host, port uint16) bool {
	return r.hosts[origin{host, port}] != nil
}

// Decide judges one request of an opened connection to host and port. It judges nothing else: whether the host may be
// reached at all is hostmatch's answer.
func (r *Rules) Decide(host hostmatch.Host, port uint16, q *request.Request) Decision {
	h := r.hosts[origin{host, port}]
	switch {
	case h == nil:
		return Decision{Reason: fmt.Sprintf("%s is not opened", host.Authority(port))}
	case q.Host != host || q.Port != port:
		return Decision{Reason: fmt.Sprintf("the request is for %s, the connection for %s", q.Host.Authority(q.Port), host.Authority(port))}
	case q.Form != request.OriginForm || q.Method == "CONNECT":
		return Decision{Reason: "a request to a proxy, inside an opened connection"}
	}
	if err := h.checkOverrides(q); err != nil {
		return Decision{Reason: err.Error()}
	}
	path := ""
	if h.paths {
		var err error
		if path, err = h.path(q.Target); err != nil {
			return Decision{Reason: err.Error()}
		}
	}
	d := h.decide(q.Method, path)
	if !d.Allow && d.Needed == "" {
		shown, _, _ := strings.Cut(q.Target, "?")
		d.Needed = q.Method + " " + host.Authority(port) + strings.Trim(hostmatch.Quote(shown), `"`)
	}
	return d
}

// path gives the path of the longest rule that covers the target, as the beginning of what decide looks at.
func (h *hostRules) path(target string) (string, error) {
	read, err := judgePath(target)
	if err != nil {
		return "", err
	}
	exact, folded := h.longest(read.opaque, false), h.longest(read.opaque, true)
	switch {
	case exact != h.longest(read.split, false) || folded != h.longest(read.split, true):
		return "", errors.New("the path has an encoded slash where a rule begins or ends")
	case exact != folded:
		return "", fmt.Errorf("the path differs from the rule for %s in upper and lower case only", h.rules[folded].path)
	}
	return read.opaque, nil
}

// longest is the index of the first rule with the longest path that covers path; len(h.rules) if there is none.
func (h *hostRules) longest(path string, fold bool) int {
	for i := range h.rules {
		prefix := h.rules[i].path
		if fold && len(path) >= len(prefix) && strings.EqualFold(path[:len(prefix)], prefix) {
			prefix = path[:len(prefix)]
		}
		if covers(prefix, path) {
			return i
		}
	}
	return len(h.rules)
}

func (h *hostRules) decide(method, path string) Decision {
	first := h.longest(path, false)
	if first == len(h.rules) {
		if h.limits {
			return Decision{Reason: "no rule of the host covers the path"}
		}
		return Decision{Allow: true, Reason: "opened; no credential for this path", host: h}
	}
	length := h.rules[first].path
	for _, r := range h.rules[first:] {
		if r.path == length && r.allows(method) {
			return Decision{Allow: true, Rule: r.String(), Reason: "allowed by the rule " + r.String(),
				Secret: r.secret, Header: r.header, Value: r.value, host: h}
		}
	}
	return Decision{Rule: h.rules[first].String(), Reason: fmt.Sprintf("the method %s is not among those of the rule for %s", method, h.rules[first].shownPath())}
}

// String is the rule without its value.
func (r rule) String() string {
	methods := "*"
	if r.methods != nil {
		methods = strings.Join(r.methods, ",")
	}
	if r.secret == "" {
		return methods + " " + r.shownPath()
	}
	return methods + " " + r.shownPath() + " with " + r.secret
}

// GoString is String, for %#v.
func (r rule) GoString() string { return r.String() }

// overrides are fields by which frameworks let a request say that it is another one (Rack, Express, Symfony, IIS).
var overrides = []string{
	"x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url", "x-original-uri",
	"x-original-method", "x-forwarded-prefix", "x-forwarded-path",
}

// checkOverrides refuses what makes a server do other than the request line says, where that line is judged.
func (h *hostRules) checkOverrides(q *request.Request) error {
	if !h.paths && !h.methods {
		return nil
	}
	for _, f := range q.Fields {
		if slices.Contains(overrides, canonicalField(f.Name)) {
			return fmt.Errorf("the field %s asks for another request than the one that is judged", hostmatch.Quote(f.Name))
		}
	}
	if q.Upgrade {
		return errors.New("a web socket to a host with rules for paths or methods; what passes through it is not requests")
	}
	return nil
}

// canonicalField is the form in which servers compare field names. CGI and its successors (RFC 3875 section 4.1.18) make
// no difference between hyphen and underscore.
func canonicalField(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
