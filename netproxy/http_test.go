package netproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// TestOriginOfOnePlace: two names under one rule are two places. A connection that was opened, and checked, for one of them
// serves no request for the other.
func TestOriginOfOnePlace(t *testing.T) {
	w := newWorld(t, control.Config{Allow: []string{"*.a.example:80"}}, nil)
	for name, address := range map[string]string{"x.a.example": "1.1.1.1", "y.a.example": "1.0.0.1"} {
		w.answers[name] = []string{address}
		w.origin(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "origin of "+name) }))
		w.mu.Lock()
		w.routes[address+":80"] = w.routes[""]
		delete(w.routes, "")
		w.mu.Unlock()
	}
	c := w.client(w.proxy)
	in := bufio.NewReader(c)
	for _, name := range []string{"x.a.example", "x.a.example", "y.a.example", "x.a.example"} {
		if _, body := w.exchange(c, in, "GET http://"+name+"/ HTTP/1.1\r\nHost: "+name+"\r\n\r\n"); body != "origin of "+name {
			t.Errorf("%s: %q", name, body)
		}
	}
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct{ answer, head, body string }{
		"length":          {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "Content-Length: 2", "ok"},
		"chunked":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n"},
		"trailer":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 9\r\n\r\n", "Trailer: X-Sum", "2\r\nok\r\n0\r\nX-Sum: 9\r\n\r\n"},
		"until close":     {"HTTP/1.0 200 OK\r\n\r\nok", "Transfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n"},
		"no content":      {"HTTP/1.1 204 No Content\r\n\r\n", "204 No Content", ""},
		"not modified":    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", "Content-Length: 7", ""},
		"interim":         {"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "Content-Length: 2", "ok"},
		"hop by hop":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\r\nok", "Content-Length: 2", "ok"},
		"redirect":        {"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n", "Location: http://evil.example/", ""},
		"unasked upgrade": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "502 Bad Gateway", "unasked"},
		"no HTTP":         {"SSH-2.0\r\n\r\n", "502 Bad Gateway", ""},
		"too long":        {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 2*maxAnswerHead) + "\r\n\r\n", "502 Bad Gateway", ""},
		"cut off":         {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "Content-Length: 9", "ok"},
	} {
		w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, tc.answer)
			}
		})
		got := w.ask("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
		if i := strings.Index(got, "HTTP/1.1 200"); name == "interim" && strings.HasPrefix(got, "HTTP/1.1 103") {
			got = got[i:]
		}
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.Contains(head, tc.head) || !strings.Contains(body, tc.body) || !strings.Contains(head, "502") && body != tc.body || strings.Contains(head, "X-Hop") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// An answer that does not wait for the body reaches the client, and the connection ends.
func TestEarlyAnswer(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		}
		io.Copy(io.Discard, c)
	})
	c := w.client(w.proxy)
	io.WriteString(c, "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nhalf")
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 413") {
		t.Errorf("%q %v", b, err)
	}
}

// A chunked body that goes wrong never looks complete to the origin.
func TestBodyGoesWrong(t *testing.T) {
	seen := make(chan error, 1)
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, err = io.Copy(io.Discard, r.Body)
		}
		seen <- err
	})
	got := w.ask("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0;\n\r\n\r\n")
	if err := <-seen; err == nil || !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("the origin sees %v, the client %q", err, got)
	}
	if r := w.record(func(r flow.Record) bool { return true }); r.Verdict != flow.Deny || !strings.Contains(r.Reason, "chunk") {
		t.Errorf("%+v", r)
	}
}

// A client that left in mid-answer stops the origin.
func TestClientLeaves(t *testing.T) {
	ended := make(chan struct{})
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		defer close(ended)
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
		for block := make([]byte, 1<<16); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	c := w.client(w.proxy)
	io.WriteString(c, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
	io.ReadFull(c, make([]byte, 1<<16))
	c.Close()
	<-ended
}

func TestSOCKSWithSyntheticAddress(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) { io.Copy(c, onlyReader{c}) })
	a := w.lookup("A", "raw.example")[0].As4()
	c := w.client(w.proxy)
	c.Write(append(append([]byte{5, 1, 0, 5, 1, 0, 1}, a[:]...), 9000>>8, 9000&0xff))
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || b[3] != 0 {
		t.Fatalf("%v %v", b, err)
	}
	c.Close()
	if r := w.record(func(r flow.Record) bool { return r.Protocol == "socks5" }); r.Host != "raw.example" {
		t.Errorf("%+v", r)
	}
}
