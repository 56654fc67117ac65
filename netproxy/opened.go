package netproxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"coworker/netproxy/dial"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
	"coworker/netproxy/tlshello"
)

// handshakeTime bounds a TLS handshake on either side.
const handshakeTime = 10 * time.Second

// readAhead is a connection whose first octets have been read.
type readAhead struct {
	net.Conn
	in *inbox
}

func (r readAhead) Read(p []byte) (int, error) { return r.in.Read(p) }

// CloseWrite lets tls.Conn end its half.
func (r readAhead) CloseWrite() error { return r.Conn.(*net.TCPConn).CloseWrite() }

// opened ends the client's TLS here and serves the requests in it. The ClientHello has been checked and is still in the
// inbox.
func (c *client) opened(a *attempt, hello *tlshello.Hello, conn *net.TCPConn) {
	config, err := c.e.authority.TLSConfig(a.place.host)
	if err != nil {
		a.rec.Broken = err.Error()
		return
	}
	inside := tls.Server(readAhead{c.conn, c.in}, config)
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTime)
	defer cancel()
	if err := inside.HandshakeContext(ctx); err != nil {
		a.rec.Broken = handshakeReason(hello, err)
		return
	}
	defer inside.Close()
	h := &httpLoop{c: c, in: newInbox(inside), out: inside, at: request.Tunnel, fixed: a, opened: true}
	defer h.in.release()
	h.origin = newOrigin(dial.Result{Conn: conn}, a)
	h.run()
}

// handshakeReason says why a client got no TLS in a way that helps to set it right.
func handshakeReason(hello *tlshello.Hello, err error) string {
	if len(hello.ALPN) > 0 && !slices.Contains(hello.ALPN, "http/1.1") {
		return "the client speaks only " + hostmatch.Quote(strings.Join(hello.ALPN, " ")) + "; where a credential is added or requests are judged, it has to speak HTTP/1.1"
	}
	return "the client ended the handshake: " + clip(err.Error())
}

// secure begins TLS with the origin of an opened host. Its certificate must be good for the host that was allowed.
func (x *exchange) secure() *refusal {
	o := x.origin
	if !x.h.opened || o.secured {
		return nil
	}
	config := &tls.Config{RootCAs: x.h.c.e.roots, ServerName: o.place.host.String(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	outside := tls.Client(o.tcp, config)
	ctx, cancel := context.WithTimeout(x.h.c.ctx, handshakeTime)
	defer cancel()
	if err := outside.HandshakeContext(ctx); err != nil {
		return &refusal{http.StatusBadGateway, request.SOCKSUnreachable, "the origin's TLS: " + err.Error(), ""}
	}
	o.conn, o.secured = outside, true
	return nil
}

// injected decides on a request in opened TLS.
func (x *exchange) injected() *refusal {
	d := x.h.c.e.hosts.Decide(x.a.place.host, x.a.place.port, x.req)
	if d.Rule != "" {
		x.a.rec.Rule = d.Rule
	}
	x.a.rec.Reason = d.Reason
	if !d.Allow {
		return denied(d.Reason, d.Needed)
	}
	x.add, x.a.rec.Credential = d, d.Secret
	return nil
}

// filter keeps credentials out of the answer.
func (x *exchange) filter(resp *http.Response) (*http.Response, error) {
	if !x.h.opened {
		return resp, nil
	}
	header := http.Header{}
	for name, values := range resp.Header {
		for _, v := range values {
			clean, err := x.add.Answer([]request.Field{{Name: name, Value: v}})
			if err != nil {
				return nil, err
			}
			header[clean[0].Name] = append(header[clean[0].Name], clean[0].Value)
		}
	}
	// A copy, because the body puts its trailers into the original when it ends. Nothing in use needs trailers.
	out := *resp
	out.Header, out.Trailer = header, nil
	out.Body = filtered{x.add.Body(resp.Body), resp.Body}
	return &out, nil
}

// filtered is a body that is read through the filter.
type filtered struct {
	io.Reader
	io.Closer
}
