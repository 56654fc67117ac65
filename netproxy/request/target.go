package request

import (
	"strings"

	"coworker/netproxy/hostmatch"
)

// setTarget finds the one host and port that the request is about.
func (r *Request) setTarget(target string, place Place) error {
	host, err := r.hostField()
	if err != nil {
		return err
	}
	switch {
	case r.Method == "CONNECT" && place != ProxyPort:
		return bad("CONNECT where no proxy is spoken to")
	case r.Method == "CONNECT":
		return r.setAuthorityForm(target, host)
	case target == "*":
		return bad("the target * names no host to decide on")
	case strings.HasPrefix(target, "/"):
		return r.setOriginForm(target, host, place)
	}
	return r.setAbsoluteForm(target, host, place)
}

// hostField gives the one Host field; "" if an HTTP/1.0 client sent none. More than one, or none in HTTP/1.1, is a 400
// by RFC 9112 section 3.2.
func (r *Request) hostField() (string, error) {
	all := r.Values("Host")
	switch {
	case len(all) > 1:
		return "", bad("%d Host fields", len(all))
	case len(all) == 1 && all[0] == "":
		return "", bad("an empty Host field")
	case len(all) == 1:
		return all[0], nil
	case r.Minor == 1:
		return "", bad("no Host field in an HTTP/1.1 request")
	}
	return "", nil
}

// setAuthorityForm reads CONNECT host:port, nothing before, between or after (RFC 9110 section 9.3.6). A Host field
// without a port is what Java and others send for the same port.
func (r *Request) setAuthorityForm(target, host string) error {
	h, port, err := hostmatch.ParseAuthority(target, 0)
	if err != nil {
		return bad("CONNECT target %s", err)
	}
	r.Form, r.Host, r.Port = AuthorityForm, h, port
	return r.agree(host, port)
}

func (r *Request) setOriginForm(target, host string, place Place) error {
	if place == ProxyPort {
		return bad("origin form %s on the proxy port, where a request names its host in the request line", hostmatch.Quote(target))
	}
	if strings.HasPrefix(target, "//") {
		return bad("the target %s reads as a host to some parsers", hostmatch.Quote(target))
	}
	if host == "" {
		return bad("no Host field to decide on")
	}
	h, port, err := hostmatch.ParseAuthority(host, place.defaultPort())
	if err != nil {
		return bad("Host field %s", err)
	}
	r.Form, r.Host, r.Port, r.Target = OriginForm, h, port, target
	return nil
}

// setAbsoluteForm reads http://host[:port][/path][?query]. https in absolute form would have the proxy see what TLS is
// there to hide, so clients send CONNECT; other schemes are not spoken.
func (r *Request) setAbsoluteForm(target, host string, place Place) error {
	if place != ProxyPort {
		return bad("absolute form %s where no proxy is spoken to", hostmatch.Quote(target))
	}
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return bad("the target %s does not begin with http://", hostmatch.Quote(target))
	}
	authority, path := target[len(scheme):], ""
	if end := strings.IndexAny(authority, "/?"); end >= 0 {
		authority, path = authority[:end], authority[end:]
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // an empty path is "/", RFC 9112 section 3.2.1
	}
	h, port, err := hostmatch.ParseAuthority(authority, place.defaultPort())
	if err != nil {
		return bad("target host %s", err)
	}
	r.Form, r.Host, r.Port, r.Target = AbsoluteForm, h, port, path
	return r.agree(host, place.defaultPort())
}

// agree compares the Host field with the target. RFC 9112 section 3.2.2 has a proxy replace the field; here a difference
// is refused, because shared edges route by Host and the client has no honest reason for it.
func (r *Request) agree(host string, defaultPort uint16) error {
	if host == "" {
		return nil // HTTP/1.0
	}
	h, port, err := hostmatch.ParseAuthority(host, defaultPort)
	if err != nil {
		return bad("Host field %s", err)
	}
	if h != r.Host || port != r.Port {
		return bad("the Host field says %s, the target %s", h.Authority(port), r.Host.Authority(r.Port))
	}
	return nil
}

func (p Place) defaultPort() uint16 {
	if p == Tunnel {
		return 443
	}
	return 80
}

// Agree says whether an authority that a client names inside an opened connection (the Host field of a later request,
// :authority of HTTP/2) is the host and port that the connection was allowed for. RFC 9110 section 7.4 calls any other
// request misdirected.
func Agree(authority string, host hostmatch.Host, port uint16) error {
	h, p, err := hostmatch.ParseAuthority(authority, port)
	if err != nil {
		return bad("authority %s", err)
	}
	if h != host || p != port {
		return &Refusal{421, "the request is for " + h.Authority(p) + ", the connection for " + host.Authority(port)}
	}
	return nil
}
