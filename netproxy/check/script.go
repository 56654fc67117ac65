package check

import (
	"strings"
)

// script is a row taken apart.
type script struct {
	exchanges []*exchange
	dns       []string // "name=answers"
	inject    []string // "Authorization for host"
}

// exchange is one request to the proxy and what happens in the tunnel it opens.
type exchange struct {
	message
	hello *hello
	first *string    // FIRSTBYTES
	inner []*message // requests inside opened TLS, or on a captured connection
}

// message is one request in text.
type message struct {
	line    string
	headers []string
	body    string
}

// parseScript never refuses: a segment that it does not know is a header line, which the request parser judges.
func parseScript(request string) *script {
	segments := strings.Split(request, " | ")
	s := &script{exchanges: []*exchange{{message: message{line: segments[0]}}}}
	for _, seg := range segments[1:] {
		s.add(seg)
	}
	return s
}

func (s *script) add(seg string) {
	ex := s.exchanges[len(s.exchanges)-1]
	key, rest, _ := strings.Cut(seg, " ")
	switch {
	case strings.HasPrefix(seg, "SNI="):
		ex.tls().setName(seg[len("SNI="):])
	case strings.HasPrefix(seg, "ALPN="):
		ex.tls().alpn = strings.Split(seg[len("ALPN="):], ",")
	case isECH(seg):
		ex.tls().ech = true
	case key == "FIRSTBYTES":
		text := unescape(rest)
		ex.first = &text
	case key == "INNER":
		ex.inner = append(ex.inner, &message{line: rest})
	case key == "DNS":
		s.dns = append(s.dns, rest)
	case key == "INJECT":
		s.inject = append(s.inject, rest)
	case key == "RESPONSE":
	case key == "THEN" && len(ex.inner) > 0:
		ex.inner = append(ex.inner, &message{line: rest})
	case key == "THEN":
		s.exchanges = append(s.exchanges, &exchange{message: message{line: rest}})
	case key == "BODY":
		ex.last().body += unescape(rest)
	case len(ex.inner) == 0 && strings.HasPrefix(ex.line, "TCP "):
		ex.inner = append(ex.inner, &message{line: seg})
	default:
		m := ex.last()
		m.headers = append(m.headers, seg)
	}
}

func isECH(seg string) bool {
	word := strings.FieldsFunc(seg, func(r rune) bool { return r == '=' || r == ' ' })
	return len(word) > 0 && (word[0] == "ECH" || word[0] == "ESNI")
}

// last is the message that header lines and bodies belong to.
func (ex *exchange) last() *message {
	if n := len(ex.inner); n > 0 {
		return ex.inner[n-1]
	}
	return &ex.message
}

func (ex *exchange) tls() *hello {
	if ex.hello == nil {
		ex.hello = &hello{}
	}
	return ex.hello
}

// bytes is the message on the wire. Rows write CONNECT without version and Host; a client sends both.
func (m *message) bytes() []byte {
	line, headers := m.line, m.headers
	if target, ok := strings.CutPrefix(line, "CONNECT "); ok && !strings.Contains(line, " HTTP/") {
		line += " HTTP/1.1"
		if !hasHost(headers) {
			headers = append([]string{"Host: " + target}, headers...)
		}
	}
	var b strings.Builder
	for _, l := range append([]string{line}, headers...) {
		b.WriteString(l + "\r\n")
	}
	b.WriteString("\r\n" + m.body)
	return []byte(b.String())
}

func hasHost(headers []string) bool {
	for _, h := range headers {
		if name, _, _ := strings.Cut(h, ":"); strings.EqualFold(strings.TrimSpace(name), "host") {
			return true
		}
	}
	return false
}

// unescape reads the escapes that BODY and FIRSTBYTES use; any other backslash stands for itself.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c, used := s[i], 0
		if c == '\\' {
			c, used = escaped(s[i+1:])
		}
		b.WriteByte(c)
		i += used
	}
	return b.String()
}

func escaped(s string) (byte, int) {
	if s == "" {
		return '\\', 0
	}
	if at := strings.IndexByte(`rnt0\`, s[0]); at >= 0 {
		return "\r\n\t\x00\\"[at], 1
	}
	if s[0] == 'x' && len(s) >= 3 {
		hi, lo := strings.IndexByte(hexDigits, s[1]|0x20), strings.IndexByte(hexDigits, s[2]|0x20)
		if hi >= 0 && lo >= 0 {
			return byte(hi<<4 | lo), 3
		}
	}
	return '\\', 0
}

const hexDigits = "0123456789abcdef"
