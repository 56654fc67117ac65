package tlshello

import (
	"unicode/utf8"

	"coworker/netproxy/hostmatch"
)

// Hello is what a ClientHello says about where it wants to go.
type Hello struct {
	Name hostmatch.Host // canonical; zero if there is no server_name extension
	ALPN []string       // protocols offered, RFC 7301
	ECH  bool           // encrypted_client_hello or its predecessor ESNI: the real name is hidden
	// EarlyData: encrypted data follows before the server has answered (RFC 8446 section 4.2.10).
	EarlyData bool
}

// Extension types, from the IANA registry.
const (
	extServerName = 0
	extALPN       = 16
	extEarlyData  = 42
	extECH        = 0xfe0d
	extESNI       = 0xffce

	maxExtensions = 256
)

// Parse reads the ClientHello at the beginning of b and says how many bytes it took. The error is ErrIncomplete or a
// *Refusal.
func Parse(b []byte) (*Hello, int, error) {
	body, n, err := reassemble(b)
	if err != nil {
		return nil, 0, err
	}
	h, err := parseBody(body)
	if err != nil {
		return nil, 0, err
	}
	return h, n, nil
}

// parseBody reads legacy_version, random, session id, cipher suites, compression methods and extensions (RFC 8446 section
// 4.1.2). A hello without extensions is legal in TLS 1.2; it has no server name.
func parseBody(body []byte) (*Hello, error) {
	c := cursor{body}
	version, ok1 := c.uint(2)
	random, ok2 := c.take(32)
	session, ok3 := c.vector(1)
	suites, ok4 := c.vector(2)
	compression, ok5 := c.vector(1)
	switch {
	case !(ok1 && ok2 && ok3 && ok4 && ok5) || len(random) != 32:
		return nil, bad("a ClientHello that ends early")
	case version < 0x0301 || version > 0x0304:
		return nil, bad("ClientHello version 0x%04x is no TLS version", version)
	case len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(compression) == 0:
		return nil, bad("a malformed ClientHello")
	case len(c.b) == 0:
		return &Hello{}, nil
	}
	extensions, ok := c.vector(2)
	if !ok || len(c.b) != 0 {
		return nil, bad("the extensions do not fill the ClientHello")
	}
	return parseExtensions(extensions)
}

func parseExtensions(b []byte) (*Hello, error) {
	h := &Hello{}
	seen := map[int]bool{}
	for c := (cursor{b}); len(c.b) > 0; {
		kind, ok1 := c.uint(2)
		data, ok2 := c.vector(2)
		switch {
		case !ok1 || !ok2:
			return nil, bad("an extension that ends early")
		case seen[kind]: // RFC 8446 section 4.2; which of two names counts would be the server's choice
			return nil, bad("extension %d twice", kind)
		case len(seen) == maxExtensions:
			return nil, bad("more than %d extensions", maxExtensions)
		}
		seen[kind] = true
		var err error
		switch kind {
		case extServerName:
			h.Name, err = parseServerName(data)
		case extALPN:
			h.ALPN, err = parseALPN(data)
		case extEarlyData:
			h.EarlyData = true
		case extECH, extESNI:
			h.ECH = true
		}
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

// parseServerName wants exactly one entry of type host_name (RFC 6066 section 3) that is a legal name in lower or upper
// case, without a final dot.
func parseServerName(b []byte) (hostmatch.Host, error) {
	c := cursor{b}
	list, ok := c.vector(2)
	if !ok || len(c.b) != 0 {
		return hostmatch.Host{}, bad("a malformed server_name extension")
	}
	c = cursor{list}
	kind, ok1 := c.uint(1)
	name, ok2 := c.vector(2)
	switch {
	case !ok1 || !ok2:
		return hostmatch.Host{}, bad("a malformed server_name extension")
	case kind != 0:
		return hostmatch.Host{}, bad("server name of type %d", kind)
	case len(c.b) != 0:
		return hostmatch.Host{}, bad("more than one server name")
	case len(name) > 0 && name[len(name)-1] == '.':
		return hostmatch.Host{}, bad("server name %s ends with a dot (RFC 6066 section 3)", hostmatch.Quote(string(name)))
	}
	h, err := hostmatch.ParseName(string(name))
	if err != nil {
		return hostmatch.Host{}, bad("server name %s", err)
	}
	return h, nil
}

func parseALPN(b []byte) ([]string, error) {
	c := cursor{b}
	list, ok := c.vector(2)
	if !ok || len(c.b) != 0 || len(list) == 0 {
		return nil, bad("a malformed ALPN extension")
	}
	var out []string
	for c = (cursor{list}); len(c.b) > 0; {
		p, ok := c.vector(1)
		if !ok || len(p) == 0 || !utf8.Valid(p) && len(p) > 2 { // GREASE values are two octets that are not UTF-8
			return nil, bad("a malformed ALPN extension")
		}
		out = append(out, string(p))
	}
	return out, nil
}

// cursor reads from the front of b; nothing is read if there is too little.
type cursor struct{ b []byte }

func (c *cursor) take(n int) ([]byte, bool) {
	if len(c.b) < n {
		return nil, false
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out, true
}

func (c *cursor) uint(n int) (int, bool) {
	b, ok := c.take(n)
	v := 0
	for _, x := range b {
		v = v<<8 | int(x)
	}
	return v, ok
}

// vector reads a length of size octets and that many octets.
func (c *cursor) vector(size int) ([]byte, bool) {
	n, ok := c.uint(size)
	if !ok {
		return nil, false
	}
	return c.take(n)
}
