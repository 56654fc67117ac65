package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/dial"
	"coworker/netproxy/flow"
)

func get(host string) string {
	return "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

func TestGrant(t *testing.T) {
	w := newWorld(t, control.Config{}, nil)
	w.origin(http.HandlerFunc(echo))
	if got := w.ask(get("a.example")); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Fatal(got)
	}
	rule := "a.example:80"
	if err := w.e.Send(control.Message{Grant: &rule}); err != nil {
		t.Fatal(err)
	}
	for !strings.HasPrefix(w.ask(get("a.example")), "HTTP/1.1 200") {
	}
	if got := w.ask(get("b.example")); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Fatal(got)
	}
}

func TestAsk(t *testing.T) {
	w := newWorld(t, control.Config{Ask: time.Minute, Deny: []string{"never.example"}}, nil)
	w.origin(http.HandlerFunc(echo))
	got := make(chan string, 3)
	for range 3 {
		go func() { got <- w.ask(get("a.example")) }()
	}
	q := <-w.asks
	if q.Host != "a.example" || q.Port != 80 || q.Needed != "a.example:80" {
		t.Errorf("%+v", q)
	}
	if err := w.e.Send(control.Message{Answer: &control.Answer{ID: q.ID, Allow: true}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if s := <-got; !strings.HasPrefix(s, "HTTP/1.1 200") {
			t.Error(s)
		}
	}
	go func() { got <- w.ask(get("b.example")) }()
	q = <-w.asks
	w.e.Send(control.Message{Answer: &control.Answer{ID: q.ID}})
	if s := <-got; !strings.HasPrefix(s, "HTTP/1.1 403") {
		t.Error(s)
	}
	if s := w.ask(get("b.example")) + w.ask(get("never.example")); strings.Count(s, "HTTP/1.1 403") != 2 {
		t.Error(s)
	}
	select {
	case q := <-w.asks:
		t.Errorf("asked again: %+v", q)
	default:
	}
}

func TestAskTimesOut(t *testing.T) {
	w := newWorld(t, control.Config{Ask: 10 * time.Millisecond}, nil)
	if s := w.ask(get("a.example")); !strings.HasPrefix(s, "HTTP/1.1 403") || !strings.Contains(s, "nobody answered") {
		t.Error(s)
	}
	w.origin(http.HandlerFunc(echo))
	q := <-w.asks
	w.e.Send(control.Message{Answer: &control.Answer{ID: q.ID, Allow: true}}) // late, and still an answer
	for !strings.HasPrefix(w.ask(get("a.example")), "HTTP/1.1 200") {
	}
}

func TestProbe(t *testing.T) {
	w := newWorld(t, control.Config{Probe: control.Probe{Name: "p1.probe.internal", Token: "the token"}}, nil)
	connect := "CONNECT p1.probe.internal:443 HTTP/1.1\r\nHost: p1.probe.internal:443\r\n\r\n"
	if s := w.ask(connect); !strings.HasPrefix(s, "HTTP/1.1 200") || !strings.HasSuffix(s, "\r\n\r\nthe token") {
		t.Error(s)
	}
	w.redirect("p1.probe.internal", 443)
	c := w.client(w.clear)
	if b, _ := io.ReadAll(c); string(b) != "the token" {
		t.Errorf("%q", b)
	}
	w.e.Send(control.Message{Settle: &struct{}{}})
	for strings.HasPrefix(w.ask(connect), "HTTP/1.1 200") {
	}
	if len(w.lookup("A", "p1.probe.internal")) > 0 {
		t.Error("the probe's name is still answered")
	}
}

// Equal refusals become one record and sums.
func TestRefusalsAreSummed(t *testing.T) {
	w := newWorld(t, control.Config{}, nil)
	const many = 200
	for range many {
		w.ask(get("a.example"))
	}
	count := func() (n, records int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, r := range w.records {
			n, records = n+r.Count, records+1
		}
		return n, records
	}
	w.record(func(flow.Record) bool { n, _ := count(); return n == many })
	if _, records := count(); records > many/4 {
		t.Errorf("%d records of %d refusals", records, many)
	}
}

func TestUpstream(t *testing.T) {
	seen := make(chan string, 8)
	l := listen(t)
	up := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.RequestURI + " " + r.Header.Get("Proxy-Authorization")
		switch {
		case r.Host == "full.example:443":
			w.WriteHeader(503)
			return
		case r.Host == "closed.example:80":
			w.WriteHeader(407)
			return
		case r.Method != "CONNECT":
			io.WriteString(w, "up")
			return
		}
		c, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(c, "HTTP/1.1 200 ok\r\n\r\n")
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Host: "+r.Host+"\r\n\r\nup")
		}
		c.Close()
	})}
	done := make(chan struct{})
	go func() { defer close(done); up.Serve(l) }()
	t.Cleanup(func() { up.Close(); <-done })
	cfg := control.Config{Allow: []string{"a.example:80", "pin.example:80=10.0.0.0/8", "direct.example:80", "full.example:443", "closed.example:80"}}
	cfg.Upstream = &control.Upstream{URL: "http://proxy.corp:3128", User: "u", Password: "p", NoProxy: []string{"direct.example"}}
	w := newWorld(t, cfg, nil)
	w.answers["proxy.corp"] = []string{"10.9.9.9"}
	w.answers["pin.example"] = []string{"10.1.1.1"}
	w.answers["a.example"] = []string{"none"} // only the upstream proxy knows it
	w.origin(http.HandlerFunc(echo))
	w.route("10.9.9.9:3128", l.Addr().String())
	auth := " Basic " + base64.StdEncoding.EncodeToString([]byte("u:p"))
	for host, want := range map[string]string{"a.example": "GET http://a.example:80/" + auth, "pin.example": "CONNECT 10.1.1.1:80" + auth} {
		if s := w.ask(get(host)); !strings.HasSuffix(s, "up") {
			t.Errorf("%s: %s", host, s)
		}
		if got := <-seen; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s := w.ask(get("direct.example")); !strings.Contains(s, "X-Seen") {
		t.Error(s)
	}
	if s := w.ask("CONNECT full.example:443 HTTP/1.1\r\nHost: full.example:443\r\n\r\n"); !strings.HasPrefix(s, "HTTP/1.1 502") {
		t.Error(s)
	}
	if s := w.ask(get("closed.example")); !strings.HasPrefix(s, "HTTP/1.1 502") || !strings.Contains(s, "wants a user and password") {
		t.Error(s)
	}
	if r := w.record(func(r flow.Record) bool { return r.Host == "a.example" }); r.ResolvedBy != "upstream" || r.Addr != "10.9.9.9:3128" {
		t.Errorf("%+v", r)
	}
	if r := w.record(func(r flow.Record) bool { return r.Host == "pin.example" }); r.ResolvedBy != "" {
		t.Errorf("%+v", r)
	}
}

// Clients that say nothing, or octet by octet, or reset, cost nothing that lasts.
func TestSlowAndRude(t *testing.T) {
	w := newWorld(t, control.Config{Allow: []string{"a.example:80"}, Limits: control.Limits{Connections: 64}}, nil)
	w.origin(http.HandlerFunc(echo))
	var silent []net.Conn
	for range 60 {
		c := w.client(w.proxy)
		io.WriteString(c, "GET http://a.ex")
		silent = append(silent, c)
	}
	for range 500 {
		c, err := net.Dial("tcp4", w.proxy)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, get("a.example"))
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	if s := w.ask(get("a.example")); !strings.HasPrefix(s, "HTTP/1.1 200") {
		t.Error(s)
	}
	for _, c := range silent {
		c.Close()
	}
}

func TestBadConfig(t *testing.T) {
	for name, send := range map[string]control.Message{
		"no configuration": {Settle: &struct{}{}},
		"bad rule":         {Config: &control.Config{Allow: []string{"*"}}},
		"no sockets":       {Config: &control.Config{IPv6: true}},
		"no authority":     {Config: &control.Config{Hosts: []control.HostRule{{Host: "a.example", Port: 443}}}},
		"upstream":         {Config: &control.Config{Upstream: &control.Upstream{URL: "socks5://x"}}},
	} {
		here, there := socketPair(t)
		c := control.NewConn(here, control.MaxLine)
		c.Send(send)
		if err := Run(context.Background(), Options{Control: there, Dialer: dial.System(), Random: bytes.NewReader(nil)}); err == nil {
			t.Errorf("%s: no error", name)
		}
		c.Close()
	}
}
