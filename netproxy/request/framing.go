package request

import (
	"strconv"
	"strings"

	"coworker/netproxy/hostmatch"
)

// Body is how the end of a request body is found, RFC 9112 section 6.
type Body struct {
	Chunked bool
	Length  int64 // zero if chunked or absent
}

// setBody accepts one Content-Length, or "chunked" as the only transfer coding, or neither. Everything else is how two
// readers come to disagree about where a request ends.
func (r *Request) setBody() error {
	lengths, codings := r.Values("Content-Length"), r.Values("Transfer-Encoding")
	for _, f := range r.Fields {
		// Gateways in front of CGI-like programs read the underscore as a hyphen.
		if strings.EqualFold(f.Name, "Content_Length") || strings.EqualFold(f.Name, "Transfer_Encoding") {
			return bad("the field %s looks like a framing field", f.Name)
		}
	}
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return bad("Content-Length and Transfer-Encoding in one request")
	case len(lengths) > 1:
		return bad("%d Content-Length fields", len(lengths))
	case len(codings) > 1:
		return bad("%d Transfer-Encoding fields", len(codings))
	case len(codings) == 1 && r.Minor == 0:
		return bad("Transfer-Encoding in HTTP/1.0 (RFC 9112 section 6.1)")
	case len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return bad("transfer coding %s, where only chunked is understood", hostmatch.Quote(codings[0]))
	case len(codings) == 1:
		r.Body.Chunked = true
	case len(lengths) == 1:
		n, err := parseLength(lengths[0])
		if err != nil {
			return err
		}
		r.Body.Length = n
	}
	if r.Form == AuthorityForm && (r.Body.Chunked || r.Body.Length > 0) {
		return bad("a body in a CONNECT request")
	}
	return nil
}

// parseLength takes plain decimal without sign, list or leading zero.
func parseLength(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 1 && s[0] == '0' {
		return 0, bad("Content-Length %s is no plain decimal number", hostmatch.Quote(s))
	}
	return int64(n), nil
}
