package request

import (
	"bytes"
	"strings"

	"coworker/netproxy/hostmatch"
)

// Limits of one request head. Common servers take 8 KiB for a line and 16 to 64 KiB for all fields.
const (
	MaxLine   = 8 << 10
	MaxHead   = 64 << 10
	MaxFields = 128
)

// Place is where the bytes came from; it says which forms are possible and what a missing port means.
type Place uint8

const (
	// ProxyPort is the port that clients are told about: CONNECT and absolute form.
	ProxyPort Place = iota
	// TransparentPort takes redirected connections of clients that know of no proxy: origin form, port 80.
	TransparentPort
	// Tunnel is the inside of TLS that the proxy opened: origin form, port 443.
	Tunnel
)

// Form is the form of the target, RFC 9112 section 3.2.
type Form uint8

// The asterisk form is refused, having no target to decide on.
const (
	OriginForm Form = iota
	AbsoluteForm
	AuthorityForm
)

// Field is one header line, name as written, value without the white space around it.
type Field struct{ Name, Value string }

// Request is a head that was understood. Host and Port are what the decision is about: request line, absolute form and
// Host field have been found to agree.
type Request struct {
	Method  string
	Form    Form
	Host    hostmatch.Host
	Port    uint16
	Target  string // path and query in origin form, to be sent on; empty for CONNECT
	Minor   int    // HTTP/1.Minor
	Fields  []Field
	Body    Body
	Upgrade bool // a web socket is asked for
	Close   bool // the connection ends after this request
}

// Values lists the values of a field in order; names are case-insensitive (RFC 9110 section 5.1).
func (r *Request) Values(name string) []string {
	var out []string
	for _, f := range r.Fields {
		if strings.EqualFold(f.Name, name) {
			out = append(out, f.Value)
		}
	}
	return out
}

// Parse reads one request head from the beginning of b and says how many bytes it took. The error is ErrIncomplete or a
// *Refusal. After CONNECT the remaining bytes belong to the tunnel.
func Parse(b []byte, place Place) (*Request, int, error) {
	if len(b) > 0 && !isToken(b[0]) {
		return nil, 0, bad("the first byte 0x%02x begins no HTTP request", b[0])
	}
	lines, n, err := splitHead(b)
	if err != nil {
		return nil, 0, err
	}
	method, target, minor, err := parseRequestLine(lines[0])
	if err != nil {
		return nil, 0, err
	}
	r := &Request{Method: method, Minor: minor}
	if r.Fields, err = parseFields(lines[1:]); err != nil {
		return nil, 0, err
	}
	if err := r.setTarget(target, place); err != nil {
		return nil, 0, err
	}
	if err := r.setBody(); err != nil {
		return nil, 0, err
	}
	if err := r.setConnection(); err != nil {
		return nil, 0, err
	}
	return r, n, nil
}

// splitHead cuts b into lines up to the empty one. A line ends with CRLF; a bare LF or CR is refused at once (RFC 9112
// section 2.2 lets a recipient accept LF, and that is how requests are smuggled past the one that does not).
func splitHead(b []byte) (lines []string, n int, err error) {
	for {
		rest := b[n:]
		end := bytes.IndexByte(rest, '\n')
		line := rest
		if end >= 0 {
			line = rest[:end]
		}
		if err := checkLine(line, end >= 0, len(lines), n); err != nil {
			return nil, 0, err
		}
		if end < 0 {
			return nil, 0, ErrIncomplete
		}
		n += end + 1
		if len(line) == 1 {
			if len(lines) == 0 {
				return nil, 0, bad("an empty line before the request")
			}
			return lines, n, nil
		}
		lines = append(lines, string(line[:len(line)-1]))
	}
}

func checkLine(line []byte, complete bool, count, offset int) error {
	switch cr := bytes.IndexByte(line, '\r'); {
	case count == 0 && len(line) > MaxLine:
		return &Refusal{414, "the request line is longer than 8 KiB"}
	case offset+len(line) > MaxHead || len(line) > MaxLine*2:
		return &Refusal{431, "the header fields are longer than allowed"}
	case count > MaxFields+1:
		return &Refusal{431, "more than 128 header fields"}
	case cr >= 0 && cr != len(line)-1:
		return bad("a bare carriage return in the head")
	case complete && cr < 0:
		return bad("a line that ends with a bare line feed")
	}
	return nil
}

// parseRequestLine reads METHOD SP TARGET SP HTTP/1.x, single spaces (RFC 9112 section 3).
func parseRequestLine(line string) (method, target string, minor int, err error) {
	fail := func(format string, args ...any) (string, string, int, error) {
		return "", "", 0, bad(format, args...)
	}
	for i := range len(line) {
		switch c := line[i]; {
		case c < ' ' || c == 0x7f:
			return fail("control character 0x%02x in the request line (octet %d)", c, i)
		case c > 0x7f:
			return fail("0x%02x in the request line (octet %d) is not ASCII; hosts are sent in the xn-- form, paths percent-encoded", c, i)
		}
	}
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isMethod(method) {
		return fail("%s is no method in capitals", hostmatch.Quote(method))
	}
	target, version, ok := strings.Cut(rest, " ")
	if !ok {
		return fail("no version in the request line (HTTP/0.9)")
	}
	switch version {
	case "HTTP/1.1":
		minor = 1
	case "HTTP/1.0":
	default:
		return fail("%s is neither HTTP/1.1 nor HTTP/1.0", hostmatch.Quote(version))
	}
	switch {
	case target == "":
		return fail("no target in the request line")
	case strings.IndexByte(target, '#') >= 0:
		return fail("a fragment in the target %s", hostmatch.Quote(target))
	case method == "TRACE" || method == "TRACK":
		return "", "", 0, &Refusal{405, method + " echoes header fields, credentials that the proxy added among them"}
	}
	return method, target, minor, nil
}

// parseFields reads NAME ":" OWS VALUE OWS (RFC 9112 section 5). A line that begins with white space continues the one
// before it (obs-fold, section 5.2) for some readers and not for others.
func parseFields(lines []string) ([]Field, error) {
	if len(lines) > MaxFields {
		return nil, &Refusal{431, "more than 128 header fields"}
	}
	out := make([]Field, 0, len(lines))
	for _, line := range lines {
		if line[0] == ' ' || line[0] == '\t' {
			return nil, bad("a folded header line (RFC 9112 section 5.2)")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, bad("header line %s without a colon", hostmatch.Quote(line))
		}
		for i := range len(name) {
			if !isToken(name[i]) {
				return nil, bad("0x%02x in the field name %s", name[i], hostmatch.Quote(name))
			}
		}
		if name == "" {
			return nil, bad("a header line without a name")
		}
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return nil, bad("0x%02x in the value of %s", c, name)
			}
		}
		out = append(out, Field{name, strings.Trim(value, " \t")})
	}
	return out, nil
}

// isMethod takes the registered shape only: capitals and hyphen. Lower case is another method for one reader and the
// same for another.
func isMethod(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" && s[0] != '-'
}

// isToken is tchar of RFC 9110 section 5.6.2.
func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
