package secret

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"coworker/platform/redact"
)

// Scheme is how a value becomes a header field.
type Scheme string

// The schemes.
const (
	Bearer Scheme = "bearer" // "Bearer VALUE", RFC 6750
	Basic  Scheme = "basic"  // "Basic base64(USER:VALUE)", RFC 7617
	Raw    Scheme = "raw"    // the value alone
)

// Source is how an entry came into the store.
type Source string

// The sources.
const (
	FromSet Source = "set"
	FromNPM Source = "npm"
	FromPip Source = "pip"
	FromGit Source = "git"
)

// Binding is where a value may be sent, and how. The zero Binding is nowhere.
type Binding struct {
	Host    string   `json:"host"`              // a canonical name (netproxy/hostmatch); the caller has parsed it
	Port    uint16   `json:"port"`              // never 80: a credential goes over TLS only
	Path    string   `json:"path,omitempty"`    // prefix that ends at a segment, without a final slash; empty: all
	Methods []string `json:"methods,omitempty"` // sorted; empty: all
	Header  string   `json:"header"`
	Scheme  Scheme   `json:"scheme"`
	User    string   `json:"user,omitempty"` // of Basic
}

// Entry is one named secret.
type Entry struct {
	Name    string
	Value   Value
	Binding Binding
	Source  Source
	Created time.Time
}

// Info is an Entry without its value.
type Info struct {
	Name string `json:"name"`
	Binding
	Source  Source    `json:"source"`
	Created time.Time `json:"created"`
}

// Info is what may be shown of e.
func (e Entry) Info() Info {
	return Info{Name: e.Name, Binding: e.Binding, Source: e.Source, Created: e.Created}
}

// Bound says that the value may be sent somewhere.
func (b Binding) Bound() bool { return b.Host != "" }

// Resource names the place for records: host, port where it is not 443, path.
func (b Binding) Resource() string {
	if !b.Bound() {
		return ""
	}
	if b.Port == 443 {
		return b.Host + b.Path
	}
	return b.Host + ":" + strconv.Itoa(int(b.Port)) + b.Path
}

// HeaderValue is the text of the header field. It is a secret like the value.
func (e Entry) HeaderValue() Value {
	switch e.Binding.Scheme {
	case Bearer:
		return NewValue("Bearer " + e.Value.Reveal())
	case Basic:
		return NewValue("Basic " + base64.StdEncoding.EncodeToString([]byte(e.Binding.User+":"+e.Value.Reveal())))
	}
	return e.Value
}

// Redactions are the texts that records of a process which opened the store must not show.
func Redactions(entries []Entry) []redact.Secret {
	var out []redact.Secret
	for _, e := range entries {
		out = append(out, redact.Secret{Name: e.Name, Value: e.Value.Reveal()})
		if e.Binding.Scheme == Basic {
			// The pair in base64 is another text than the value in base64.
			_, pair, _ := strings.Cut(e.HeaderValue().Reveal(), " ")
			out = append(out, redact.Secret{Name: e.Name, Value: pair})
		}
	}
	return out
}

// MaxName is the longest name.
const MaxName = 64

// ValidName reports whether s can name a secret: lower-case letters and digits, then also dots, dashes and underlines.
// Tokens of the usual kinds have capital letters, so that a value typed in place of a name is refused.
func ValidName(s string) bool {
	for i, r := range s {
		word := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !word && (i == 0 || !strings.ContainsRune("._-", r)) {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

// Check says why an entry cannot be kept. No error holds the value, or a name that could be one.
func (e Entry) Check() error {
	if !ValidName(e.Name) {
		return fmt.Errorf("a name has up to %d lower-case letters, digits, dots, dashes and underlines, a letter or digit first", MaxName)
	}
	if err := CheckValue(e.Value); err != nil {
		return err
	}
	if !slices.Contains([]Source{FromSet, FromNPM, FromPip, FromGit}, e.Source) {
		return fmt.Errorf("%s: unknown source %q", e.Name, e.Source)
	}
	if err := e.Binding.Check(); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	return nil
}

// Check says why a binding is none.
func (b Binding) Check() error {
	if !b.Bound() {
		if b.Port != 0 || b.Path != "" || len(b.Methods) > 0 || b.Header != "" || b.Scheme != "" || b.User != "" {
			return fmt.Errorf("a path, method, header or scheme without a host")
		}
		return nil
	}
	if len(b.Host) > 253 || strings.Trim(b.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return fmt.Errorf("host %q is not a canonical name", b.Host)
	}
	if b.Port == 0 || b.Port == 80 {
		return fmt.Errorf("port %d: a credential is sent over TLS only", b.Port)
	}
	if err := checkPath(b.Path); err != nil {
		return err
	}
	if !slices.IsSorted(b.Methods) || len(slices.Compact(slices.Clone(b.Methods))) != len(b.Methods) || len(b.Methods) > 16 {
		return fmt.Errorf("methods %q are not sorted, or one is there twice", b.Methods)
	}
	for _, m := range b.Methods {
		if !token(m) || m != strings.ToUpper(m) || m == "CONNECT" {
			return fmt.Errorf("%q is no method that can carry a credential", m)
		}
	}
	if !token(b.Header) || forbidden(b.Header) {
		return fmt.Errorf("%q is no header field that can carry a credential", b.Header)
	}
	return b.checkScheme()
}

func (b Binding) checkScheme() error {
	switch b.Scheme {
	case Basic:
		// RFC 7617 section 2: the first colon ends the user; control characters are not allowed.
		if strings.ContainsFunc(b.User, func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f }) || len(b.User) > 1024 {
			return fmt.Errorf("the user of basic holds a colon or a control character, or is too long")
		}
	case Bearer, Raw:
		if b.User != "" {
			return fmt.Errorf("only basic has a user")
		}
	default:
		return fmt.Errorf("unknown scheme %q", b.Scheme)
	}
	return nil
}

// checkPath takes plain paths only: a prefix with an escape, a dot segment or a query would be compared with something
// else than what the server sees.
func checkPath(p string) error {
	if p == "" {
		return nil
	}
	if len(p) > 1024 || p[0] != '/' || strings.HasSuffix(p, "/") {
		return fmt.Errorf("path %q must begin with a slash, end without one and be shorter than 1 KiB", p)
	}
	for _, segment := range strings.Split(p[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("path %q has an empty or dot segment", p)
		}
	}
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`%?#\"<>^{|};`+"`", c) >= 0 {
			return fmt.Errorf("path %q holds %q, which clients write in more than one way", p, c)
		}
	}
	return nil
}

// token is the syntax of names and methods in RFC 9110 section 5.6.2.
func token(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// forbidden are fields that frame or route a request: a value there would be no credential but a smuggled request
// (RFC 9110 section 7.6.1, RFC 9112 section 6).
func forbidden(header string) bool {
	switch strings.ToLower(header) {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer",
		"upgrade", "expect", "via", "forwarded", "proxy-authorization", "proxy-authenticate":
		return true
	}
	return false
}
