package netproxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %v", r.Method, r.Host, r.RequestURI, r.TransferEncoding))
	w.Header().Set("Keep-Alive", "timeout=5")
	io.WriteString(w, "body:"+string(b))
}

func TestAbsoluteForm(t *testing.T) {
	w := newWorld(t, control.Config{Allow: []string{"a.example:80", "b.example:80"}}, nil)
	w.origin(http.HandlerFunc(echo))
	c := w.client(w.proxy)
	in := bufio.NewReader(c)
	for _, tc := range []struct{ send, seen, body string }{
		{"GET http://a.example/x?y=1 HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET a.example /x?y=1 []", "body:"},
		{"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello", "POST a.example / []", "body:hello"},
		{"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST a.example / [chunked]", "body:hello"},
		{"GET http://b.example HTTP/1.1\r\nHost: b.example\r\nProxy-Authorization: Basic x\r\n\r\n", "GET b.example / []", "body:"},
		{"HEAD http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "HEAD a.example / []", ""},
		{"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok", "", ""},
	} {
		r, body := w.exchange(c, in, tc.send)
		if r.StatusCode == 100 {
			r, _ = w.exchange(c, in, "")
			tc.seen = "POST a.example / []"
		} else if body != tc.body {
			t.Errorf("%q: body %q", tc.send, body)
		}
		if r.StatusCode != 200 || r.Header.Get("X-Seen") != tc.seen || r.Header.Get("Keep-Alive") != "" {
			t.Errorf("%q: %d %v", tc.send, r.StatusCode, r.Header)
		}
	}
	rec := w.record(func(r flow.Record) bool { return r.Path == "/x" })
	if rec.Verdict != flow.Allow || rec.Status != 200 || rec.BytesIn == 0 || rec.BytesOut == 0 || rec.Addr != "140.82.112.3:80" || !rec.Inspected {
		t.Errorf("%+v", rec)
	}
	r, body := w.exchange(c, in, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if r.StatusCode != 403 || !strings.Contains(r.Status, "--allow evil.example:80") || !strings.Contains(body, "--allow evil.example:80") {
		t.Errorf("%s %q", r.Status, body)
	}
}

func TestPipelined(t *testing.T) {
	w := newWorld(t, control.Config{Allow: []string{"a.example:80"}}, nil)
	w.origin(http.HandlerFunc(echo))
	one := "GET http://a.example/1 HTTP/1.1\r\nHost: a.example\r\n\r\n"
	got := w.ask(one + strings.Replace(one, "/1", "/2", 1) + strings.ReplaceAll(one, "a.example", "evil.example") + one)
	if strings.Count(got, "200 OK") != 2 || strings.Count(got, "HTTP/1.1 403") != 1 {
		t.Error(got)
	}
}
