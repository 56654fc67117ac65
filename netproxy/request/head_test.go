package request

import (
	"errors"
	"strings"
	"testing"
)

// crlf writes a head line by line.
func crlf(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		place Place
		in    string
		want  string // METHOD host:port target
	}{
		{ProxyPort, crlf("CONNECT github.com:443 HTTP/1.1", "Host: github.com:443"), "CONNECT github.com:443 "},
		{ProxyPort, crlf("CONNECT github.com:443 HTTP/1.1", "Host: github.com"), "CONNECT github.com:443 "},
		{ProxyPort, crlf("CONNECT github.com:443 HTTP/1.0"), "CONNECT github.com:443 "},
		{ProxyPort, crlf("CONNECT GitHub.com.:443 HTTP/1.1", "hOST:\tgithub.com:443 \t"), "CONNECT github.com:443 "},
		{ProxyPort, crlf("CONNECT [::1]:443 HTTP/1.1", "Host: [0:0::1]:443", "Content-Length: 0"), "CONNECT [::1]:443 "},
		{ProxyPort, crlf("GET http://example.com HTTP/1.1", "Host: example.com"), "GET example.com:80 /"},
		{ProxyPort, crlf("GET HTTP://example.com?a=b HTTP/1.1", "Host: example.com:80"), "GET example.com:80 /?a=b"},
		{ProxyPort, crlf("GET http://example.com:8080/a?u=http://evil.example/@x HTTP/1.1", "Host: example.com:8080"), "GET example.com:8080 /a?u=http://evil.example/@x"},
		{ProxyPort, crlf("GET http://example.com/ HTTP/1.0"), "GET example.com:80 /"},
		{ProxyPort, crlf("M-SEARCH http://example.com/ HTTP/1.1", "Host: example.com", "X-Utf: \xc3\xbc", "Empty:"), "M-SEARCH example.com:80 /"},
		{TransparentPort, crlf("GET /a//b HTTP/1.1", "Host: example.com"), "GET example.com:80 /a//b"},
		{Tunnel, crlf("GET / HTTP/1.1", "Host: example.com"), "GET example.com:443 /"},
		{ProxyPort, crlf("GET http://example.com/ HTTP/1.1", "Host: example.com", "Upgrade: WebSocket", "Connection: keep-alive, Upgrade"), "GET example.com:80 /"},
		{ProxyPort, crlf("POST http://example.com/ HTTP/1.1", "Host: example.com", "Content-Length: 9223372036854775807", "Expect: 100-continue"), "POST example.com:80 /"},
	} {
		r, n, err := Parse([]byte(c.in+"rest"), c.place)
		if err != nil || n != len(c.in) {
			t.Errorf("%q: %d of %d, %v", c.in, n, len(c.in), err)
			continue
		}
		if got := r.Method + " " + r.Host.Authority(r.Port) + " " + r.Target; got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// host is what the refused heads below add where the Host field is not the point.
const host = "Host: example.com"

func TestParseRefuses(t *testing.T) {
	get := "GET http://example.com/ HTTP/1.1"
	post := "POST http://example.com/ HTTP/1.1"
	for _, c := range []struct {
		place  Place
		in     string
		reason string
	}{
		// request line
		{ProxyPort, crlf("GET http://example.com/"), "HTTP/0.9"}, {ProxyPort, crlf("GET  http://example.com/ HTTP/1.1", host), "HTTP/1.1"},
		{ProxyPort, crlf("GET http://example.com/  HTTP/1.1", host), "neither"}, {ProxyPort, crlf("GET http://example.com/ HTTP/1.1 ", host), "neither"},
		{ProxyPort, crlf("GET http://example.com/ HTTP/1.2", host), "neither"}, {ProxyPort, crlf("GET http://example.com/ http/1.1", host), "neither"},
		{ProxyPort, crlf("GET http://example.com/ HTTP/2.0", host), "neither"}, {ProxyPort, crlf("GET http://example.com/ HTTP/1.10", host), "neither"},
		{ProxyPort, crlf("get http://example.com/ HTTP/1.1", host), "capitals"}, {ProxyPort, crlf("connect github.com:443 HTTP/1.1"), "capitals"},
		{ProxyPort, crlf("GET\thttp://example.com/ HTTP/1.1", host), "0x09"}, {ProxyPort, crlf("TRACE http://example.com/ HTTP/1.1", host), "echoes"},
		{ProxyPort, "\r\n" + crlf(get, host), "begins no HTTP"}, {ProxyPort, "\x16\x03\x01\x02\x00", "begins no HTTP"}, {ProxyPort, "\x05\x01\x00", "begins no HTTP"}, {ProxyPort, " " + crlf(get, host), "begins no HTTP"},
		{ProxyPort, crlf("GET http://example.com/#f HTTP/1.1", host), "fragment"}, {ProxyPort, crlf("GET http://example.com/\xc3\xbc HTTP/1.1", host), "ASCII"},
		// targets
		{ProxyPort, crlf("GET http:evil/ HTTP/1.1", host), "does not begin"}, {ProxyPort, crlf("GET //evil/ HTTP/1.1", host), "origin form"}, {ProxyPort, crlf("GET http:///x HTTP/1.1", host), "empty host"},
		{ProxyPort, crlf("GET https://example.com/ HTTP/1.1", host), "does not begin"}, {ProxyPort, crlf("GET example.com/ HTTP/1.1", host), "does not begin"}, {ProxyPort, crlf("GET / HTTP/1.1", host), "origin form"},
		{ProxyPort, crlf("OPTIONS * HTTP/1.1", host), "names no host"}, {ProxyPort, crlf(`GET http:\\evil\ HTTP/1.1`, host), "does not begin"}, {ProxyPort, crlf("GET http://example.com:80@evil/ HTTP/1.1", host), "user information"},
		{ProxyPort, crlf("GET http://example.com:0/ HTTP/1.1", host), "zero"}, {ProxyPort, crlf("GET http://example.com:+80/ HTTP/1.1", host), "decimal"}, {ProxyPort, crlf("GET http://example.com:/ HTTP/1.1", host), "empty port"},
		{ProxyPort, crlf("CONNECT a:443:443 HTTP/1.1", "Host: a:443"), "second colon"}, {ProxyPort, crlf("CONNECT a:65536 HTTP/1.1", "Host: a"), "65535"}, {ProxyPort, crlf("CONNECT http://a:443 HTTP/1.1", "Host: a"), "second colon"},
		{ProxyPort, crlf("CONNECT u:p@a:443 HTTP/1.1", "Host: a"), "user information"}, {ProxyPort, crlf("CONNECT a,b:443 HTTP/1.1", "Host: a"), "','"}, {ProxyPort, crlf("CONNECT /a:443 HTTP/1.1", "Host: a"), "slash"},
		{ProxyPort, crlf("CONNECT a HTTP/1.1", "Host: a"), "no port"}, {ProxyPort, crlf("CONNECT * HTTP/1.1", "Host: a"), "star"}, {ProxyPort, crlf("CONNECT a:443?x HTTP/1.1", "Host: a"), "decimal"},
		{TransparentPort, crlf(get, host), "absolute form"}, {TransparentPort, crlf("CONNECT a:443 HTTP/1.1", "Host: a"), "no proxy"}, {TransparentPort, crlf("GET //evil/ HTTP/1.1", host), "reads as a host"},
		{TransparentPort, crlf("GET / HTTP/1.0"), "no Host"}, {Tunnel, crlf("GET https://example.com/ HTTP/1.1", host), "absolute form"}, {Tunnel, crlf("OPTIONS * HTTP/1.1", host), "names no host"},
		// Host
		{ProxyPort, crlf(get), "no Host field"}, {ProxyPort, crlf(get, host, host), "2 Host fields"}, {ProxyPort, crlf(get, host, "HOST: evil"), "2 Host fields"}, {ProxyPort, crlf(get, "Host:"), "empty Host"},
		{ProxyPort, crlf(get, "Host: evil"), "the Host field says"}, {ProxyPort, crlf(get, "Host: example.com:8080"), "the Host field says"}, {ProxyPort, crlf(get, "Host: example.com, evil"), "Host field"},
		{ProxyPort, crlf(get, "Host: example.com evil"), "0x20"}, {ProxyPort, crlf("CONNECT a:443 HTTP/1.1", "Host: b:443"), "the Host field says"}, {ProxyPort, crlf("CONNECT a:443 HTTP/1.1", "Host: a:80"), "the Host field says"},
		{ProxyPort, crlf("GET http://example.com:6379/ HTTP/1.1", host), "the Host field says"}, {ProxyPort, crlf("GET http://evil/ HTTP/1.0", host), "the Host field says"},
		// field syntax
		{ProxyPort, crlf(get, " "+host), "folded"}, {ProxyPort, crlf(get, host, "A: b", "\tc"), "folded"}, {ProxyPort, crlf(get, "Host : example.com"), "0x20"}, {ProxyPort, crlf(get, host, "A"), "colon"},
		{ProxyPort, crlf(get, host, ": b"), "without a name"}, {ProxyPort, crlf(get, host, "A: b\x00c"), "0x00"}, {ProxyPort, crlf(get, host, "A: b\rc: d"), "bare carriage"}, {ProxyPort, crlf(get, host, "A\x0b: b"), "0x0b"},
		{ProxyPort, crlf(get, host, "A: b\x7f"), "0x7f"}, {ProxyPort, crlf(get, host, "(A): b"), "0x28"}, {ProxyPort, crlf(get, host, "\xc3\xbc: b"), "0xc3"},
		{ProxyPort, get + "\n" + host + "\r\n\r\n", "bare line feed"}, {ProxyPort, get + "\r\n" + host + "\n\r\n", "bare line feed"}, {ProxyPort, get + "\r\n" + host + "\r\n\n", "bare line feed"}, {ProxyPort, get + "\r\r\n", "bare carriage"},
		// framing
		{ProxyPort, crlf(post, host, "Content-Length: 5", "Transfer-Encoding: chunked"), "Content-Length and"}, {ProxyPort, crlf(post, host, "Content-Length: 5", "Content-Length: 5"), "2 Content-Length"},
		{ProxyPort, crlf(post, host, "Content-Length: 5,5"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length: +5"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length: -5"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length: 0x5"), "decimal"},
		{ProxyPort, crlf(post, host, "Content-Length: 05"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length:"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length: 5_0"), "decimal"}, {ProxyPort, crlf(post, host, "Content-Length: 9223372036854775808"), "decimal"},
		{ProxyPort, crlf(post, host, "Transfer-Encoding: gzip, chunked"), "only chunked"}, {ProxyPort, crlf(post, host, "Transfer-Encoding: chunked, chunked"), "only chunked"}, {ProxyPort, crlf(post, host, "Transfer-Encoding: chunked;a=b"), "only chunked"},
		{ProxyPort, crlf(post, host, "Transfer-Encoding:"), "only chunked"}, {ProxyPort, crlf(post, host, "Transfer-Encoding: identity"), "only chunked"}, {ProxyPort, crlf(post, host, "Transfer-Encoding: \x0bchunked"), "0x0b"},
		{ProxyPort, crlf(post, host, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), "2 Transfer"}, {ProxyPort, crlf("POST http://example.com/ HTTP/1.0", host, "Transfer-Encoding: chunked"), "HTTP/1.0"},
		{ProxyPort, crlf(post, host, "Transfer_Encoding: chunked"), "looks like"}, {ProxyPort, crlf("CONNECT a:443 HTTP/1.1", "Host: a", "Content-Length: 3"), "CONNECT"}, {ProxyPort, crlf("CONNECT a:443 HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"), "CONNECT"},
		// connection
		{ProxyPort, crlf(get, host, "Connection: close, Host"), "end-to-end"}, {ProxyPort, crlf(get, host, "Connection: Content-Length"), "end-to-end"}, {ProxyPort, crlf(get, host, "Upgrade: h2c", "Connection: upgrade"), "h2c"},
		{ProxyPort, crlf(get, host, "Upgrade: websocket, h2c", "Connection: upgrade"), "only websocket"}, {ProxyPort, crlf(get, host, "Upgrade: websocket", "Upgrade: h2c", "Connection: upgrade"), "only websocket"},
		{ProxyPort, crlf(get, host, "Upgrade: websocket"), "needs GET"}, {ProxyPort, crlf(post, host, "Upgrade: websocket", "Connection: upgrade"), "needs GET"}, {ProxyPort, crlf(get, host, "HTTP2-Settings: AA"), "HTTP/2"},
		{ProxyPort, crlf(get, host, "Expect: 200-maybe"), "expectation"},
		// size
		{ProxyPort, "GET http://example.com/" + strings.Repeat("a", MaxLine), "8 KiB"}, {ProxyPort, get + "\r\n" + strings.Repeat("A: b\r\n", MaxFields+2), "128"}, {ProxyPort, get + "\r\nA: " + strings.Repeat("b", 3*MaxLine), "longer"},
		{ProxyPort, get + "\r\n" + strings.Repeat("A: "+strings.Repeat("b", MaxLine)+"\r\n", 9), "longer"},
	} {
		r, _, err := Parse([]byte(c.in), c.place)
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, c.reason) || refusal.Status < 400 || r != nil {
			t.Errorf("%.100q: %+v %v, want a reason with %q", c.in, r, err, c.reason)
		}
	}
}

func TestParseNeedsTheWholeHead(t *testing.T) {
	in := crlf("GET http://example.com/ HTTP/1.1", host, "A: b")
	for i := range len(in) {
		if _, _, err := Parse([]byte(in[:i]), ProxyPort); err != ErrIncomplete {
			t.Fatalf("%q: %v", in[:i], err)
		}
	}
}

func TestHandling(t *testing.T) {
	r, _, err := Parse([]byte(crlf("GET http://example.com/ HTTP/1.1", host, "Connection: close, X-Hop", "X-Hop: 1", "X-End: 2", "Proxy-Authorization: Basic eA==")), ProxyPort)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Handling{"X-Hop": Drop, "x-end": Forward, "Proxy-Authorization": Drop, "CONNECTION": Rewrite, "Host": Rewrite, "TE": Drop, "Authorization": Forward} {
		if got := r.HandlingOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if !r.Close || r.Upgrade || r.Body != (Body{}) {
		t.Errorf("%+v", r)
	}
}

func TestAgree(t *testing.T) {
	r, _, err := Parse([]byte(crlf("CONNECT github.com:443 HTTP/1.1", "Host: github.com:443")), ProxyPort)
	if err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]bool{"github.com": true, "GITHUB.com.:443": true, "github.com:80": false, "evil.example": false, "": false, "u@github.com": false, "github.com,evil": false} {
		if err := Agree(authority, r.Host, r.Port); (err == nil) != want {
			t.Errorf("%q: %v, want agreement %v", authority, err, want)
		}
	}
}
