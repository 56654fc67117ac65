package netproxy

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
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

// compare runs work directly and through the proxy in turns, and reports the ratio of the rates.
func compare(b *testing.B, w *world, work func(to string, through bool, n int)) {
	const turns = 4
	var direct, proxied time.Duration
	b.ResetTimer()
	for i := range turns {
		n := b.N / turns
		if i == 0 {
			n += b.N % turns
		}
		begun := time.Now()
		work(w.routes[""], false, n)
		half := time.Now()
		work(w.proxy, true, n)
		direct, proxied = direct+half.Sub(begun), proxied+time.Since(half)
	}
	b.ReportMetric(direct.Seconds()/proxied.Seconds(), "x-direct")
	b.ReportMetric(float64(b.N)/proxied.Seconds(), "proxied/s")
	b.ReportMetric(0, "ns/op")
}

func small1K(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1024)) }

// BenchmarkPlainHTTP is absolute form over kept connections, 16 at once, 1 KiB answers. The goal is 0.38.
func BenchmarkPlainHTTP(b *testing.B) {
	w := newWorld(b, control.Config{Allow: []string{"a.example:80"}}, nil)
	w.origin(http.HandlerFunc(small1K))
	compare(b, w, func(to string, through bool, n int) {
		text := "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
		if through {
			text = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"
		}
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() { getter(b, to, text, (n+i)/16) })
		}
		wait.Wait()
	})
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
	w.origin(http.HandlerFunc(small1K))
	compare(b, w, func(to string, through bool, n int) {
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				for range (n + i) / 8 {
					connectOnce(b, to, through)
				}
			})
		}
		wait.Wait()
	})
}

func connectOnce(b *testing.B, to string, through bool) {
	c, err := net.Dial("tcp4", to)
	if err != nil {
		b.Error(err)
		return
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

// BenchmarkTunnel downloads through TLS in CONNECT; an operation is 1 MiB. The goal is 0.8.
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
	l := listen(b)
	b.Cleanup(func() { l.Close() })
	w.route("", l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go upload(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*leaf}}))
		}
	}()
	b.SetBytes(1 << 20)
	compare(b, w, func(to string, through bool, n int) { download(b, to, through, n) })
}

func download(b *testing.B, to string, through bool, n int) {
	c, err := net.Dial("tcp4", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if through {
		io.WriteString(c, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n")
		io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
	}
	t := tls.Client(c, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
	fmt.Fprintf(t, "%d\n", n)
	if got, err := io.Copy(io.Discard, t); err != nil || got != int64(n)<<20 {
		b.Fatal(got, err)
	}
}

func upload(c net.Conn) {
	defer c.Close()
	n := 0
	fmt.Fscan(c, &n)
	for block := make([]byte, 1<<20); n > 0; n-- {
		c.Write(block)
	}
}
