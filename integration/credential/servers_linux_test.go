package credential

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// seen is one request as a server got it.
type seen struct {
	host   string // of the server that was asked
	method string
	uri    string
	header http.Header
	name   string // in its Host field
	from   string
	length int64
}

// servers are the hosts of the world. Each notes every request before it judges it.
type servers struct {
	mu       sync.Mutex
	requests []seen
	wanted   map[string]string // Authorization by host; a host without one asks for none
	tunnels  []string          // what the company's proxy was asked for, with how it answered
	release  chan struct{}     // closed: /wait answers
	reached  chan string       // the path of each request to /wait
}

func newServers(t *testing.T, w *world) *servers {
	t.Helper()
	s := &servers{wanted: map[string]string{}, release: make(chan struct{}), reached: make(chan string, 16)}
	quiet := log.New(io.Discard, "", 0)
	tlsOf := func(names ...string) *tls.Config {
		c := &tls.Config{}
		for _, name := range names {
			c.Certificates = append(c.Certificates, w.certificate(t, name))
		}
		return c
	}
	serve := func(name, port string, config *tls.Config, h http.Handler) {
		l := w.listen(t, net.JoinHostPort(addresses[name], port))
		server := &http.Server{Handler: s.note(name, port, h), ErrorLog: quiet, TLSConfig: config}
		var serving sync.WaitGroup
		serving.Go(func() {
			if config == nil {
				_ = server.Serve(l)
			} else {
				_ = server.ServeTLS(l, "", "")
			}
		})
		t.Cleanup(func() { server.Close(); serving.Wait() })
	}
	site := s.site()
	asking := tlsOf("cert.test")
	asking.ClientAuth = tls.RequireAnyClientCert
	serve("ok.test", "443", tlsOf("ok.test", hidden), s.guarded("ok.test", site))
	serve("ok.test", "80", nil, site)
	serve("other.test", "443", tlsOf("other.test"), site)
	serve("other.test", "80", nil, site)
	serve("direct.test", "443", tlsOf("direct.test"), site)
	serve("ask.test", "443", tlsOf("ask.test"), site)
	serve("ask.test", "80", nil, site)
	serve("cert.test", "443", asking, site)
	serve("wrong.test", "443", tlsOf("ok.test"), site)
	serve("npm.test", "443", tlsOf("npm.test"), s.guarded("npm.test", registry(t)))
	serve("git.test", "443", tlsOf("git.test"), s.guarded("git.test", repositories(t)))
	s.companyProxy(t, w)
	s.want("ok.test", "Bearer nobody-knows-this-yet")
	s.want("git.test", "Basic nobody-knows-this-yet")
	s.want("npm.test", "Bearer nobody-knows-this-yet")
	return s
}

// want sets what a host answers 200 to.
func (s *servers) want(host, authorization string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted[host] = authorization
}

func (s *servers) note(host, port string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, seen{
			host: net.JoinHostPort(host, port), method: r.Method, uri: r.RequestURI, header: r.Header.Clone(), name: r.Host, from: r.RemoteAddr, length: r.ContentLength,
		})
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (s *servers) guarded(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		want := s.wanted[host]
		s.mu.Unlock()
		if got := r.Header.Values("Authorization"); want != "" && (len(got) != 1 || got[0] != want) {
			scheme, _, _ := strings.Cut(want, " ")
			w.Header().Set("WWW-Authenticate", scheme+` realm="world"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// take returns the requests so far and forgets them.
func (s *servers) take() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// to are those for one host and port.
func to(host string, all []seen) []seen {
	return slices.DeleteFunc(slices.Clone(all), func(r seen) bool { return r.host != host })
}

// site is a server that does what a test needs of one, the hostile things too.
func (s *servers) site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "welcome %s %s\n", r.Method, r.URL.Path)
	})
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/gzip", gzipped)
	mux.HandleFunc("/socket", webSocket)
	mux.HandleFunc("/dribble", dribble)
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/toobig", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %s %v\n", n, hex.EncodeToString(sum.Sum(nil)), err)
	})
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) {
		s.reached <- r.URL.Path
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
		fmt.Fprintln(w, "released")
	})
	return mux
}

// echo tells the client everything that it was sent: in an interim answer, in fields, in the body, in the trailer, and in
// the spellings of spellings.
func echo(w http.ResponseWriter, r *http.Request) {
	for name, values := range r.Header {
		for _, v := range values {
			w.Header().Add("Link", fmt.Sprintf("</%s>; rel=preload", v))
			w.Header().Add("X-Echo-"+name, v)
		}
	}
	if r.URL.RawQuery == "early" { // many clients stumble over it
		w.WriteHeader(http.StatusEarlyHints)
	}
	w.Header().Set("Trailer", "X-Trailer")
	for name, values := range r.Header {
		for _, v := range values {
			fmt.Fprintf(w, "%s: %s\n", name, v)
			for _, form := range spellings(v) {
				fmt.Fprintf(w, "%s\n", form)
			}
		}
	}
	w.Header().Set("X-Trailer", r.Header.Get("Authorization"))
}

// companyProxy answers CONNECT for who knows the password.
func (s *servers) companyProxy(t *testing.T, w *world) {
	l := w.listen(t, net.JoinHostPort(addresses["proxy.test"], "3128"))
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		want := s.wanted["proxy.test"]
		s.mu.Unlock()
		status := http.StatusOK
		switch {
		case r.Method != http.MethodConnect:
			status = http.StatusMethodNotAllowed
		case r.Header.Get("Proxy-Authorization") != want:
			status = http.StatusProxyAuthRequired
		}
		s.mu.Lock()
		s.tunnels = append(s.tunnels, fmt.Sprintf("%d %s", status, r.RequestURI))
		s.mu.Unlock()
		if status != http.StatusOK {
			rw.WriteHeader(status)
			return
		}
		tunnel(w, rw, r)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Close(); serving.Wait() })
}

// tunnel connects a client of the company's proxy with a server.
func tunnel(w *world, rw http.ResponseWriter, r *http.Request) {
	host, port, _ := net.SplitHostPort(r.RequestURI)
	address := host // of a rule that names a range: the session looked the name up itself, to check the address
	switch {
	case host == hidden:
		address = addresses["ok.test"]
	case addresses[host] != "":
		address = addresses[host]
	}
	var origin net.Conn
	err := w.inFar(func() (err error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addresses["proxy.test"])}}
		origin, err = dialer.DialContext(r.Context(), "tcp", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer origin.Close()
	client, _, err := rw.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(ctx, func() { origin.Close(); client.Close() })
	defer stop()
	var up sync.WaitGroup
	up.Go(func() { _, _ = io.Copy(origin, client); origin.(*net.TCPConn).CloseWrite() })
	_, _ = io.Copy(client, origin)
	client.Close()
	up.Wait()
}

func (s *servers) takeTunnels() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.tunnels
	s.tunnels = nil
	return out
}
