package netproxy

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/inject"
)

// BenchmarkPlainHTTP is absolute form over kept connections, 16 at once, 1 KiB answers.
func BenchmarkPlainHTTP(b *testing.B) {
	w := newWorld(b, control.Config{Allow: []string{"a.example:80"}}, nil)
	body := make([]byte, 1024)
	w.origin(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write(body) }))
	direct := "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
	through := "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"
	b.Run("direct", func(b *testing.B) { requests(b, w.routes[""], direct) })
	b.Run("proxy", func(b *testing.B) { requests(b, w.proxy, through) })
}

func requests(b *testing.B, to, text string) {
	const clients = 16
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range clients {
		n := b.N / clients
		if i == 0 {
			n += b.N % clients
		}
		wait.Go(func() { getter(b, to, text, n) })
	}
	wait.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "req/s")
}

func getter(b *testing.B, to, text string, n int) {
	c, err := net.Dial("tcp4", to)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for range n {
		io.WriteString(c, text)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Error(err)
			return
		}
		io.Copy(io.Discard, r.Body)
	}
}

// BenchmarkConnect is a new connection and CONNECT for each request.
func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, control.Config{Allow: []string{"a.example:8080"}}, nil)
	body := make([]byte, 1024)
	w.origin(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write(body) }))
	for _, through := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "proxy"}[through], func(b *testing.B) {
			to := w.routes[""]
			if through {
				to = w.proxy
			}
			for range b.N {
				connectOnce(b, to, through)
			}
		})
	}
}

func connectOnce(b *testing.B, to string, through bool) {
	c, err := net.Dial("tcp4", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	if through {
		io.WriteString(c, "CONNECT a.example:8080 HTTP/1.1\r\nHost: a.example:8080\r\n\r\n")
		http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n")
	io.Copy(io.Discard, in)
}

// BenchmarkTunnel is one download through TLS; an operation is 1 MiB.
func BenchmarkTunnel(b *testing.B) {
	w := newWorld(b, control.Config{Allow: []string{"a.example"}}, nil)
	a, err := inject.NewAuthority(rand.Reader, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	host, _ := hostmatch.ParseName("a.example")
	leaf, err := a.Leaf(host)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CertificatePEM())
	l := listen(b)
	b.Cleanup(func() { l.Close() })
	w.route("", l.Addr().String())
	server := &tls.Config{Certificates: []tls.Certificate{*leaf}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go download(tls.Server(c, server))
		}
	}()
	for _, through := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "proxy"}[through], func(b *testing.B) {
			to := w.routes[""]
			if through {
				to = w.proxy
			}
			c, err := net.Dial("tcp4", to)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if through {
				io.WriteString(c, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n")
				io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
			}
			t := tls.Client(c, &tls.Config{ServerName: "a.example", RootCAs: roots})
			b.SetBytes(1 << 20)
			b.ResetTimer()
			fmt.Fprintf(t, "%d\n", b.N)
			if n, err := io.Copy(io.Discard, t); err != nil || n != int64(b.N)<<20 {
				b.Fatal(n, err)
			}
		})
	}
}

func download(c net.Conn) {
	defer c.Close()
	n := 0
	fmt.Fscan(c, &n)
	block := make([]byte, 1<<20)
	for range n {
		c.Write(block)
	}
}
