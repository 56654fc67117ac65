package request

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"coworker/netproxy/hostmatch"
)

func TestChunks(t *testing.T) {
	for in, used := range map[string]int{
		"0\r\n\r\n": 5, "5\r\nhello\r\n0\r\n\r\nGET /": 15, "00A;x=y\r\n0123456789\r\n0\r\n\r\n": 26, "1\r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n": 23, "5 \r\n": -1, "a;q=\"x y\"\t\r\n0123456789\r\n0\r\n\r\n": 29,
		"5\r\nhel": 6, "": 0,
		"5;\nx\r\nhello\r\n0\r\n\r\n": -1, "5\nhello\r\n0\r\n\r\n": -1, "\r\n": -1, ";a\r\n": -1, "-1\r\n": -1, "+5\r\n": -1, "0x5\r\n": -1, "5\r\rhello": -1, "5\r\nhelloX": -1, "5\r\nhello\n0\r\n\r\n": -1,
		"5\r\nhello\r\r0\r\n\r\n": -1, "FFFFFFFFFFFFFFFF\r\n": -1, "0\r\n A: b\r\n\r\n": -1, "0\r\nA: b\n\r\n": -1, "0\r\nA: b\r\n\rX": -1, "0\r\nA: \x00\r\n\r\n": -1, "5;\x00\r\n": -1,
		strings.Repeat("0", 20) + "\r\n\r\n": -1, "5;" + strings.Repeat("a", 300) + "\r\n": -1, "0\r\n" + strings.Repeat("A: b\r\n", 3000): -1,
	} {
		var whole Chunks
		n, err := whole.Feed([]byte(in))
		if (err != nil) != (used < 0) || err == nil && n != used {
			t.Errorf("%.60q: %d %v, want %d", in, n, err, used)
		}
		var single Chunks
		total := 0
		var err1 error
		for i := 0; i < len(in) && !single.Done() && err1 == nil; i++ {
			var k int
			k, err1 = single.Feed([]byte(in[i : i+1]))
			total += k
		}
		if (err1 == nil) != (err == nil) || err == nil && (total != n || single.Done() != whole.Done()) {
			t.Errorf("%.60q: octet by octet %d %v, at once %d %v", in, total, err1, n, err)
		}
	}
}

func TestSOCKS(t *testing.T) {
	name := func(s string, port ...byte) string {
		return "\x05\x01\x00\x03" + string(rune(len(s))) + s + string(port)
	}
	for in, want := range map[string]string{
		name("GitHub.com.", 1, 0xbb): "github.com:443", "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50": "127.0.0.1:80", name("1.2.3.4", 0, 22): "1.2.3.4:22",
		"\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50": "[::1]:80", "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x01\x02\x03\x04\x00\x50": "1.2.3.4:80",
	} {
		h, port, n, err := ParseSOCKS([]byte(in + "rest"))
		if err != nil || n != len(in) || h.Authority(port) != want {
			t.Errorf("%q: %s, %d, %v, want %s", in, h.Authority(port), n, err, want)
		}
		for i := range len(in) {
			if _, _, _, err := ParseSOCKS([]byte(in[:i])); err != ErrIncomplete {
				t.Errorf("%q: %v", in[:i], err)
			}
		}
	}
	for in, reason := range map[string]string{
		"\x04\x01\x00\x50\x7f\x00\x00\x01\x00": "version 4", "\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50": "BIND", "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00": "UDP", "\x05\x09\x00\x01\x00\x00": "command 9",
		"\x05\x01\x01\x01\x00\x00": "reserved", "\x05\x01\x00\x02\x00\x00": "type 2", name("a\x00b", 0, 80): "0x00", name("a\r\nb", 0, 80): "0x0d", name("", 0, 80): "empty", name("::1", 0, 80): "colon",
		name("a:80", 0, 80): "colon", name("a", 0, 0): "port 0", name("127.1", 0, 80): "127.0.0.1", name("[::1]x", 0, 80): "bracket", name("fe80::1%e", 0, 80): "colon",
	} {
		h, _, _, err := ParseSOCKS([]byte(in))
		var refusal *SOCKSRefusal
		if !errors.As(err, &refusal) || refusal.Reply == SOCKSSucceeded || !strings.Contains(err.Error(), reason) || !h.IsZero() {
			t.Errorf("%q: %s %v, want a reason with %q", in, h, err, reason)
		}
	}
	for in, want := range map[string]int{"\x05\x01\x00": 3, "\x05\x02\x02\x00rest": 4, "": -2, "\x05": -2, "\x05\x02\x00": -2, "\x05\x01\x02": -1, "\x05\x00": -1, "\x04\x01\x00": -1, "GET": -1} {
		n, err := ParseSOCKSGreeting([]byte(in))
		if want >= 0 && (n != want || err != nil) || want == -2 && err != ErrIncomplete || want == -1 && (err == nil || err == ErrIncomplete) {
			t.Errorf("greeting %q: %d %v, want %d", in, n, err, want)
		}
	}
	if !IsSOCKS(5) || IsSOCKS('G') {
		t.Error("first octet")
	}
}

// What Parse accepts, net/http accepts too and reads the same way; the proxy may hand it on.
func FuzzParse(f *testing.F) {
	for _, s := range []string{crlf("GET http://example.com/a?b HTTP/1.1", host, "Content-Length: 5") + "hello", crlf("CONNECT [::1]:443 HTTP/1.1", "Host: [::1]:443"),
		crlf("POST http://a.b:81/ HTTP/1.1", "Host: a.b:81", "Transfer-Encoding: chunked") + "0\r\n\r\n", crlf("GET http://a/ HTTP/1.0"), crlf("GET / HTTP/1.1", host)} {
		for p := ProxyPort; p <= Tunnel; p++ {
			f.Add([]byte(s), byte(p))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, place byte) {
		r, n, err := Parse(b, Place(place%3))
		if err != nil {
			if r != nil || n != 0 {
				t.Fatalf("refused, but gave %+v", r)
			}
			return
		}
		if r.Host.IsZero() || r.Port == 0 || n > len(b) || !bytes.HasSuffix(b[:n], []byte("\r\n\r\n")) {
			t.Fatalf("%q gives %+v, %d", b, r, n)
		}
		std, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			if !pickier(err) {
				t.Fatalf("%q: net/http refuses: %v", b[:n], err)
			}
			return
		}
		if std.Method != r.Method {
			t.Fatalf("%q: method %q, net/http %q", b[:n], r.Method, std.Method)
		}
		if r.Form == AbsoluteForm {
			h, port, err := hostmatch.ParseAuthority(std.URL.Host, 80)
			if err != nil || h != r.Host || port != r.Port {
				t.Fatalf("%q: host %s, net/http %q", b[:n], r.Host.Authority(r.Port), std.URL.Host)
			}
		}
		if r.Body.Chunked != (len(std.TransferEncoding) == 1) || !r.Body.Chunked && std.ContentLength != r.Body.Length {
			t.Fatalf("%q: body %+v, net/http %v %d", b[:n], r.Body, std.TransferEncoding, std.ContentLength)
		}
	})
}

// pickier are refusals of net/http for what is no concern here: escapes in paths.
func pickier(err error) bool {
	s := err.Error()
	return strings.Contains(s, "invalid URL escape") || strings.Contains(s, "parse") || strings.Contains(s, "trailer")
}

// A body that is accepted is read to its end by net/http, with the same bytes left over.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\nGET", "5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n", "5;\nx\r\nhello\r\n0\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Chunks
		n, err := c.Feed(b)
		if err != nil || !c.Done() {
			return
		}
		head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		in := bufio.NewReader(strings.NewReader(head + string(b)))
		std, err := http.ReadRequest(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, std.Body); err != nil {
			if strings.Contains(err.Error(), "MIME header") || strings.Contains(err.Error(), "trailer") || strings.Contains(err.Error(), "excessive chunk") {
				return
			}
			t.Fatalf("%q: net/http refuses: %v", b[:n], err)
		}
		rest, err := io.ReadAll(in)
		if err != nil || string(rest) != string(b[n:]) {
			t.Fatalf("%q: %q follows, for net/http %q", b, b[n:], rest)
		}
	})
}
