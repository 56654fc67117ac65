package request

import (
	"strings"

	"coworker/netproxy/hostmatch"
)

// Handling is what the proxy does with a field when it sends a request on.
type Handling uint8

// Fields are forwarded unless the table says otherwise.
const (
	Forward Handling = iota
	// Drop: the field is about the connection between client and proxy (RFC 9110 section 7.6.1).
	Drop
	// Rewrite: the proxy writes the field anew from what it parsed (framing, Host, a web socket's upgrade).
	Rewrite
)

var handling = map[string]Handling{
	"connection": Rewrite, "host": Rewrite, "upgrade": Rewrite, "content-length": Rewrite, "transfer-encoding": Rewrite,
	"keep-alive": Drop, "proxy-connection": Drop, "proxy-authenticate": Drop, "proxy-authorization": Drop,
	"proxy-authentication-info": Drop, "te": Drop, "trailer": Drop, "http2-settings": Drop,
}

// HandlingOf says what happens to a field of this request: the table, and what the Connection field names.
func (r *Request) HandlingOf(name string) Handling {
	name = strings.ToLower(name)
	if h, ok := handling[name]; ok {
		return h
	}
	for _, option := range r.options("Connection") {
		if option == name {
			return Drop
		}
	}
	return Forward
}

// endToEnd are fields that must not be dropped because a client lists them in Connection: without them the origin reads
// another request than the one that was judged.
var endToEnd = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "content-type": true, "content-encoding": true,
	"authorization": true, "cookie": true, "range": true, "expect": true, "origin": true,
}

// setConnection reads Connection, Upgrade and Expect. The only protocol that a connection may be switched to is the web
// socket: h2c hides all later requests.
func (r *Request) setConnection() error {
	upgrade := false
	r.Close = r.Minor == 0
	for _, field := range []string{"Connection", "Proxy-Connection"} {
		for _, option := range r.options(field) {
			switch {
			case endToEnd[option]:
				return bad("%s names the end-to-end field %s", field, hostmatch.Quote(option))
			case option == "close":
				r.Close = true
			case option == "upgrade":
				upgrade = true
			}
		}
	}
	if len(r.Values("HTTP2-Settings")) > 0 {
		return bad("HTTP2-Settings asks for HTTP/2 in clear text")
	}
	for _, v := range r.Values("Expect") {
		if !strings.EqualFold(v, "100-continue") {
			return &Refusal{417, "expectation " + hostmatch.Quote(v) + " is not known"}
		}
	}
	protocols := r.Values("Upgrade")
	switch {
	case len(protocols) == 0:
		return nil
	case len(protocols) > 1 || !strings.EqualFold(protocols[0], "websocket"):
		return bad("upgrade to %s, where only websocket is understood", hostmatch.Quote(strings.Join(protocols, ", ")))
	case !upgrade || r.Method != "GET" || r.Minor != 1 || r.Body != Body{}:
		return bad("an upgrade to websocket needs GET, HTTP/1.1, no body, and Connection: upgrade (RFC 6455 section 4.1)")
	}
	r.Upgrade = true
	return nil
}

// options splits the comma lists of a field, in lower case.
func (r *Request) options(field string) []string {
	var out []string
	for _, v := range r.Values(field) {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.ToLower(strings.Trim(part, " \t")); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}
