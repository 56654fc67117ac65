package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

const connectRaw = "CONNECT raw.example:9000 HTTP/1.1\r\nHost: raw.example:9000\r\n\r\n"

// rawWorld has one raw rule, and an origin that runs serve for each connection.
func rawWorld(t testing.TB, limits control.Limits, serve func(*net.TCPConn)) *world {
	w := newWorld(t, control.Config{Allow: []string{"raw.example:9000", "a.example", "a.example:80"}, Limits: limits}, nil)
	l := listen(t)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			open.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); open.Wait() })
	w.route("", l.Addr().String())
	return w
}

func (w *world) tunnel(request string) (*net.TCPConn, *bufio.Reader) {
	w.t.Helper()
	c := w.client(w.proxy)
	in := bufio.NewReader(c)
	if r, body := w.exchange(c, in, request); r.StatusCode != 200 {
		w.t.Fatalf("%s %s", r.Status, body)
	}
	return c, in
}

// Each half ends alone, and the other goes on.
func TestHalfClose(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c) // needs the client's end
		c.Write(append([]byte("got:"), b...))
	})
	c, in := w.tunnel(connectRaw)
	io.WriteString(c, "hello")
	c.CloseWrite()
	if b, err := io.ReadAll(in); string(b) != "got:hello" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	r := w.record(func(r flow.Record) bool { return r.Host == "raw.example" })
	if r.BytesIn != 9 || r.BytesOut != 5 || r.Broken != "" || r.Inspected || r.Verdict != flow.Allow || r.Protocol != "connect" {
		t.Errorf("%+v", r)
	}
}

func TestOriginResets(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	})
	c, in := w.tunnel(connectRaw)
	io.WriteString(c, "x")
	if _, err := io.ReadAll(in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, not a reset", err)
	}
	if r := w.record(func(r flow.Record) bool { return r.Host == "raw.example" }); r.Broken == "" {
		t.Errorf("%+v", r)
	}
}

func TestManyTunnels(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) { io.Copy(c, onlyReader{c}) })
	const many = 500
	type end struct {
		c  *net.TCPConn
		in *bufio.Reader
	}
	var ends []end
	for range many {
		c, in := w.tunnel(connectRaw)
		ends = append(ends, end{c, in})
	}
	for _, e := range ends {
		io.WriteString(e.c, "ping")
	}
	for _, e := range ends {
		b := make([]byte, 4)
		if _, err := io.ReadFull(e.in, b); err != nil || string(b) != "ping" {
			t.Fatalf("%q %v", b, err)
		}
		e.c.Close()
	}
}

// A client that stops reading stops the origin, and the proxy keeps no more than the sockets' buffers.
func TestBackPressure(t *testing.T) {
	sent := make(chan int, 1)
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		block := make([]byte, 1<<20)
		total := 0
		for range 512 {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := c.Write(block)
			total += n
			if err != nil {
				break
			}
		}
		sent <- total
	})
	c, _ := w.tunnel(connectRaw)
	if n := <-sent; n >= 64<<20 {
		t.Errorf("%d bytes left the origin though nobody read them", n)
	}
	c.Close()
}

func TestIdleLimit(t *testing.T) {
	w := rawWorld(t, control.Limits{Idle: 50 * time.Millisecond}, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	_, in := w.tunnel(connectRaw)
	io.ReadAll(in)
	if r := w.record(func(r flow.Record) bool { return r.Host == "raw.example" }); !strings.Contains(r.Broken, "silent for") {
		t.Errorf("%+v", r)
	}
}

func TestTotalLimit(t *testing.T) {
	w := rawWorld(t, control.Limits{Total: 100 * time.Millisecond}, func(c *net.TCPConn) {
		for {
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
		}
	})
	_, in := w.tunnel(connectRaw)
	io.Copy(io.Discard, in)
	if r := w.record(func(r flow.Record) bool { return r.Host == "raw.example" }); !strings.Contains(r.Broken, "open for") {
		t.Errorf("%+v", r)
	}
}

// HTTP/2 goes through CONNECT untouched, with a certificate that only the origin has.
func TestHTTP2ThroughConnect(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	w := newWorld(t, control.Config{Allow: []string{"example.com"}}, nil)
	w.route("", s.Listener.Addr().String())
	c, in := w.tunnel("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return prefixed{c, in}, nil }}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "HTTP/2.0" {
		t.Errorf("%q", b)
	}
}

func TestServerSpeaksFirst(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) { io.WriteString(c, "SSH-2.0-x\r\n"); io.Copy(io.Discard, c) })
	c, in := w.tunnel("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	io.WriteString(c, "SSH-2.0-client\r\n")
	if b, err := io.ReadAll(in); err == nil || len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
	r := w.record(func(r flow.Record) bool { return r.Host == "a.example" })
	if r.Verdict != flow.Deny || r.Needed != "a.example:443+raw" {
		t.Errorf("%+v", r)
	}
}

func TestWebSocket(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-WebSocket-Key") != "k" {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nfirst")
		io.Copy(c, onlyReader{in})
	})
	for _, head := range []string{"GET http://a.example/ws HTTP/1.1\r\n", "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\nGET /ws HTTP/1.1\r\n"} {
		c := w.client(w.proxy)
		io.WriteString(c, head+"Host: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly")
		in := bufio.NewReader(c)
		if strings.HasPrefix(head, "CONNECT") {
			http.ReadResponse(in, &http.Request{Method: "CONNECT"})
		}
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != 101 || r.Header.Get("Sec-WebSocket-Accept") != "x" || r.Header.Get("Upgrade") != "websocket" {
			t.Fatalf("%v %v", r, err)
		}
		c.CloseWrite()
		if b, _ := io.ReadAll(in); string(b) != "firstearly" {
			t.Errorf("%q", b)
		}
	}
}

func TestSecondHello(t *testing.T) {
	got := make(chan []byte, 1)
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) { b, _ := io.ReadAll(c); got <- b })
	c, _ := w.tunnel("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	good, evil := helloBytes(t, "a.example"), helloBytes(t, "evil.example")
	c.Write(good)
	c.Write(evil)
	r := w.record(func(r flow.Record) bool { return r.Host == "a.example" })
	if !strings.Contains(r.Broken+r.Reason, "evil.example") { // the two hellos may come in one piece
		t.Errorf("%+v", r)
	}
	if b := <-got; bytes.Contains(b, evil) {
		t.Error("the second hello passed as a whole")
	}
}

// TestSecondHelloLater: the first hello has been sent on when the second comes.
func TestSecondHelloLater(t *testing.T) {
	good, evil := helloBytes(t, "a.example"), helloBytes(t, "evil.example")
	first, got := make(chan struct{}), make(chan []byte, 1)
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		if _, err := io.ReadFull(c, make([]byte, len(good))); err == nil {
			close(first)
		}
		b, _ := io.ReadAll(c)
		got <- b
	})
	c, _ := w.tunnel("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	c.Write(good)
	<-first
	c.Write(evil)
	if r := w.record(func(r flow.Record) bool { return r.Host == "a.example" }); !strings.Contains(r.Broken, "evil.example") {
		t.Errorf("%+v", r)
	}
	if b := <-got; bytes.Contains(b, evil) {
		t.Error("the second hello passed as a whole")
	}
}

// helloBytes is what crypto/tls sends first for a name.
func helloBytes(t *testing.T, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(a, &tls.Config{ServerName: name}).Handshake()
	}()
	buf := make([]byte, 16<<10)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	size := 5 + int(buf[3])<<8 + int(buf[4])
	for n < size {
		more, err := b.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	a.Close()
	<-done
	return buf[:n]
}
