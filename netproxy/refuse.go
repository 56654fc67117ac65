package netproxy

import (
	"fmt"
	"net/http"
	"strings"

	"coworker/netproxy/flow"
)

// answer is the head and body of a refusal. The reason stands in the status line, the fields and the body, because each
// of curl, git, pip and npm shows only one of them.
func (r *refusal) answer(withBody bool) []byte {
	body := r.reason
	phrase := http.StatusText(r.status)
	if r.status == http.StatusForbidden {
		phrase = r.reason
	}
	if r.needed != "" {
		body = fmt.Sprintf("%s\nTo allow it: %s", r.reason, flow.Remedy(r.needed))
		phrase = "not on the allow list: " + flow.Remedy(r.needed)
	}
	body = "coworker: " + body + "\n"
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, oneLine(phrase))
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n", len(body))
	fmt.Fprintf(&b, "X-Coworker-Reason: %s\r\n", oneLine(r.reason))
	if r.needed != "" {
		fmt.Fprintf(&b, "X-Coworker-Needed: %s\r\n", oneLine(r.needed))
	}
	fmt.Fprintf(&b, "Proxy-Status: coworker; error=%s\r\n", r.kind()) // RFC 9209
	b.WriteString("Connection: close\r\n\r\n")
	if withBody {
		b.WriteString(body)
	}
	return []byte(b.String())
}

// kind is an error type of RFC 9209 section 2.3.
func (r *refusal) kind() string {
	switch r.status {
	case http.StatusForbidden:
		return "http_request_denied"
	case http.StatusBadGateway:
		return "destination_unavailable"
	case http.StatusGatewayTimeout:
		return "connection_timeout"
	}
	return "http_request_error"
}

// oneLine keeps visible ASCII: reasons quote hostile text, and a line end in one would begin a header field.
func oneLine(s string) string {
	s = clip(s)
	clean := func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}
	return strings.Map(clean, s)
}
