package netproxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

// The credential reaches its host and path, in no other request, and never comes back.
func TestCredential(t *testing.T) {
	const secret = "Bearer 0123456789abcdef"
	inside, outside := authority(t), authority(t)
	ca, err := inside.Encode()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := hostmatch.ParseName("api.example")
	leaf, err := outside.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	cfg := control.Config{Allow: []string{"api.example", "api.example:80", "api.example:443+raw"}, CA: &ca}
	cfg.Hosts = []control.HostRule{{Host: "api.example", Port: 443, Path: "/v1", Methods: []string{"GET"}, Secret: "token", Header: "Authorization", Value: secret}}
	w := newWorld(t, cfg, func(_ *world, o *Options) {
		o.Roots = x509.NewCertPool()
		o.Roots.AppendCertsFromPEM(outside.CertificatePEM())
	})
	got := make(chan string, 16)
	reflect := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization") + " " + r.Header.Get("Accept-Encoding")
		rw.Header().Set("X-Back", r.Header.Get("Authorization"))
		io.WriteString(rw, "you sent "+r.Header.Get("Authorization"))
	})
	s := w.origin(reflect)
	l := tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{*leaf}})
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	w.route("140.82.112.3:443", l.Addr().String())

	c, in := w.tunnel("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(inside.CertificatePEM())
	sec := tls.Client(prefixed{c, in}, &tls.Config{RootCAs: roots, ServerName: "api.example", NextProtos: []string{"h2", "http/1.1"}})
	secIn := bufio.NewReader(sec)
	for range 2 {
		r, body := w.exchange(sec, secIn, "GET /v1/x HTTP/1.1\r\nHost: api.example\r\nAuthorization: mine\r\nAccept-Encoding: gzip\r\n\r\n")
		if seen := <-got; seen != secret+" identity" {
			t.Errorf("the origin got %q", seen)
		}
		if all := body + r.Header.Get("X-Back"); r.StatusCode != 200 || strings.Contains(all, "0123456789abcdef") {
			t.Errorf("%s %q", r.Status, all)
		}
	}
	rec := w.record(func(r flow.Record) bool { return r.Protocol == "https" })
	if rec.Credential != "token" || rec.Path != "/v1/x" || rec.Status != 200 || rec.Method != "GET" {
		t.Errorf("%+v", rec)
	}
	if r, _ := w.exchange(sec, secIn, "POST /v1/x HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0\r\n\r\n"); r.StatusCode != 403 {
		t.Errorf("POST: %s", r.Status)
	}
	if s := w.ask(get("api.example")); !strings.Contains(s, "200 OK") {
		t.Error(s)
	}
	if seen := <-got; strings.Contains(seen, "0123456789") {
		t.Error("the credential went out in clear text")
	}
}

// openedWorld opens api.example with a credential for all of it; serve is its origin, inside TLS.
func openedWorld(t *testing.T, serve func(net.Conn, *http.Request)) (w *world, client *tls.Conn) {
	inside, outside := authority(t), authority(t)
	ca, _ := inside.Encode()
	host, _ := hostmatch.ParseName("api.example")
	leaf, _ := outside.Leaf(host)
	cfg := control.Config{Allow: []string{"api.example"}, CA: &ca}
	cfg.Hosts = []control.HostRule{{Host: "api.example", Port: 443, Secret: "token", Header: "Authorization", Value: "Bearer 0123456789abcdef"}}
	w = newWorld(t, cfg, func(_ *world, o *Options) {
		o.Roots = x509.NewCertPool()
		o.Roots.AppendCertsFromPEM(outside.CertificatePEM())
	})
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		sec := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*leaf}})
		defer sec.Close()
		if r, err := http.ReadRequest(bufio.NewReader(sec)); err == nil {
			serve(sec, r)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	w.route("", l.Addr().String())
	c, in := w.tunnel("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(inside.CertificatePEM())
	return w, tls.Client(prefixed{c, in}, &tls.Config{RootCAs: roots, ServerName: "api.example"})
}

// However an origin says the credential back, it does not reach the cell or a record.
func TestCredentialComesBack(t *testing.T) {
	for name, answer := range map[string]string{
		"interim":   "HTTP/1.1 103 Early Hints\r\nLink: SECRET\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"no HTTP":   "SECRET\r\n\r\n",
		"bad field": "HTTP/1.1 200 OK\r\nSECRET\r\n\r\n",
		"phrase":    "HTTP/1.1 200 SECRET\r\nContent-Length: 0\r\n\r\n",
		"name":      "HTTP/1.1 200 OK\r\nX-0123456789abcdef: 1\r\nContent-Length: 0\r\n\r\n",
		"trailer":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA: SECRET\r\n\r\n",
		"bad end":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSECRET\r\n\r\n",
		"socket":    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nA: SECRET\r\n\r\nframe SECRET",
		"gzip":      "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSECRET",
	} {
		t.Run(name, func(t *testing.T) {
			w, c := openedWorld(t, func(o net.Conn, r *http.Request) {
				io.WriteString(o, strings.ReplaceAll(answer, "SECRET", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
			})
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			c.CloseWrite()
			b, _ := io.ReadAll(c)
			if len(b) == 0 || strings.Contains(strings.ToLower(string(b)), "0123456789abcdef") {
				t.Errorf("%q", b)
			}
			r := w.record(func(r flow.Record) bool { return r.Host == "api.example" })
			if strings.Contains(r.Reason+r.Broken+r.Path, "0123456789abcdef") || r.Credential != "token" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// An origin whose certificate is not good for the host gets nothing.
func TestOriginNotVerified(t *testing.T) {
	inside, outside := authority(t), authority(t)
	ca, _ := inside.Encode()
	host, _ := hostmatch.ParseName("api.example")
	leaf, _ := outside.Leaf(host)
	cfg := control.Config{Allow: []string{"api.example"}, CA: &ca, Hosts: []control.HostRule{{Host: "api.example", Port: 443}}}
	w := newWorld(t, cfg, func(_ *world, o *Options) { o.Roots = x509.NewCertPool() })
	s := w.origin(http.HandlerFunc(echo))
	l := tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{*leaf}})
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	w.route("", l.Addr().String())
	c, in := w.tunnel("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(inside.CertificatePEM())
	sec := tls.Client(prefixed{c, in}, &tls.Config{RootCAs: roots, ServerName: "api.example"})
	if r, body := w.exchange(sec, bufio.NewReader(sec), "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"); r.StatusCode != 502 || !strings.Contains(body, "TLS") {
		t.Errorf("%s %s", r.Status, body)
	}
}
