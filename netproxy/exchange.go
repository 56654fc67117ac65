package netproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"coworker/netproxy/inject"
	"coworker/netproxy/request"
)

// exchange is one request that was allowed, and its answer. goproxy carries it: it calls roundTrip for the answer and
// writes that through response. The head that goes out is built from the parse that was judged.
type exchange struct {
	h      *httpLoop
	req    *request.Request
	a      *attempt
	add    inject.Decision // on a request in opened TLS
	w      *response
	origin *origin
	body   chan error // the end of sending the body; nil if there is none
	failed *refusal   // why there is no answer
	// switched: the origin agreed to a web socket.
	switched bool
}

// errNoAnswer tells goproxy that there is nothing to write; the answer to the client is exchange.failed.
var errNoAnswer = errors.New("no answer")

func (x *exchange) hasBody() bool { return x.req.Body.Chunked || x.req.Body.Length > 0 }

// run says whether the connection can be used for another request.
func (x *exchange) run() bool {
	h := x.h
	x.w = newResponse(x)
	defer x.w.free()
	x.h.c.e.http.ServeHTTP(x.w, x.standard())
	if x.failed != nil && !x.w.wrote {
		if x.body != nil {
			x.endBody()
		}
		x.drop()
		x.failed.reason = x.clean(x.failed.reason)
		return h.refuse(x.a, x.failed, x.req)
	}
	err := x.w.finish()
	x.a.rec.Status = x.w.status
	if err == nil && x.switched {
		x.webSocket()
		return false
	}
	if x.body != nil {
		err = errors.Join(err, x.endBody())
	}
	x.account()
	if err != nil || x.w.close || x.req.Close {
		x.brokenBy(err)
		x.drop()
		if errors.Is(err, errBodyUnread) {
			h.endUnread()
		}
		return false
	}
	if x.origin == nil || x.origin.spent() {
		x.drop()
	}
	return true
}

// standard is the request as goproxy wants it. Only its address is real: fields and body are sent from the parse.
func (x *exchange) standard() *http.Request {
	u := &url.URL{Scheme: "http", Host: x.req.Host.Authority(x.req.Port), Path: "/"}
	r := &http.Request{Method: x.req.Method, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}
	return r.WithContext(withExchange(x.h.c.ctx, x))
}

func (x *exchange) drop() {
	if x.origin != nil {
		x.origin.close()
	}
	x.h.origin = nil
}

func (x *exchange) account() {
	if o := x.origin; o != nil {
		x.a.rec.BytesIn, x.a.rec.BytesOut = o.in-o.inBefore, o.out-o.outBefore
	}
}

func (x *exchange) brokenBy(err error) {
	var bad *request.Refusal
	switch {
	case err == nil:
	case errors.As(err, &bad):
		x.a.refuse(refusalOf(bad))
	case x.h.c.dog.why() != "":
		x.a.rec.Broken = x.h.c.dog.why()
	default:
		x.a.rec.Broken = x.clean(reasonOf(err))
	}
}

// clean keeps a credential out of a text about an answer.
func (x *exchange) clean(s string) string {
	if !x.h.opened {
		return s
	}
	return x.add.Clean(s)
}

// roundTrip sends the request and reads the head of the answer.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.try(r)
	if err != nil && x.failed == nil {
		x.failed = &refusal{http.StatusBadGateway, 0, "the origin did not answer: " + reasonOf(err), ""}
	}
	if x.failed != nil {
		return nil, errNoAnswer
	}
	return resp, nil
}

func (x *exchange) try(r *http.Request) (*http.Response, error) {
	if x.failed = x.connect(); x.failed != nil {
		return nil, errNoAnswer
	}
	if err := x.origin.send(x.head()); err != nil {
		return nil, err
	}
	if x.hasBody() {
		if err := x.expect(); err != nil {
			return nil, err
		}
		x.body = make(chan error, 1)
		go x.sendBody()
	}
	resp, err := x.origin.answer(r, x.w)
	if err != nil {
		return nil, x.bodyError(err)
	}
	if resp.StatusCode == http.StatusProxyAuthRequired && x.origin.via != "" {
		resp.Body.Close()
		return nil, errors.New("the upstream proxy wants a user and password (407)")
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !x.req.Upgrade || !isWebSocket(resp.Header) {
			return nil, errors.New("it switches protocols unasked")
		}
		x.switched = true
		resp.Body = http.NoBody
	}
	dropHop(resp.Header)
	clean, err := x.filter(resp)
	if err != nil {
		x.failed = &refusal{http.StatusBadGateway, 0, err.Error(), ""}
	}
	return clean, err
}

// bodyError prefers what was wrong with the body to the broken connection that followed from it.
func (x *exchange) bodyError(err error) error {
	if x.body == nil {
		return err
	}
	var bad *request.Refusal
	if sent := x.endBody(); errors.As(sent, &bad) {
		x.failed = refusalOf(bad)
	}
	return err
}

// connect uses the kept connection if it was opened for the same place under the same rule and is still good.
func (x *exchange) connect() *refusal {
	o := x.h.origin
	if o != nil && o.serves(x.a) {
		x.origin = o
		x.a.rec.Addr, x.a.rec.ResolvedBy = o.addr, o.resolvedBy
		o.begin()
		return x.secure()
	}
	if o != nil {
		o.close()
		x.h.origin = nil
	}
	res, r := x.a.dial(x.h.c.ctx, !x.h.opened)
	if r != nil {
		return r
	}
	x.origin = newOrigin(res, x.a)
	x.h.origin = x.origin
	x.origin.untrack = x.h.c.e.track(res.Conn)
	x.h.c.watch(res.Conn)
	return x.secure()
}

// expect answers 100-continue here (RFC 9110 section 10.1.1 lets a proxy do so): the decision has been made.
func (x *exchange) expect() error {
	if x.req.Minor == 0 || len(x.req.Values("Expect")) == 0 {
		return nil
	}
	_, err := io.WriteString(x.h.out, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// head is the request as it is sent on. The caller of origin.send gives the buffer back.
func (x *exchange) head() *[]byte {
	buf := heads.Get().(*[]byte)
	b := append((*buf)[:0], x.req.Method...)
	b = append(b, ' ')
	if via := x.origin.via; via != "" {
		b = append(append(b, "http://"...), via...)
	}
	b = append(append(b, x.req.Target...), " HTTP/1.1\r\nHost: "...)
	if x.req.Port == 80 && !x.h.opened || x.req.Port == 443 && x.h.opened {
		b = append(b, x.req.Host.Bracketed()...)
	} else {
		b = append(b, x.req.Host.Authority(x.req.Port)...)
	}
	b = append(b, "\r\n"...)
	for _, f := range x.fields() {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	switch {
	case x.req.Body.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case x.req.Body.Length > 0 || len(x.req.Values("Content-Length")) > 0:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), x.req.Body.Length, 10), "\r\n"...)
	}
	if x.origin.authorization != "" {
		b = append(append(append(b, "Proxy-Authorization: "...), x.origin.authorization...), "\r\n"...)
	}
	if x.req.Upgrade {
		b = append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	*buf = append(b, "\r\n"...)
	return buf
}

// sendBody copies the body as it is framed, and checks the framing as it passes. A body that is wrong or cut off ends the
// origin's connection: it must not look complete. One that the origin reads no more of may have an answer.
func (x *exchange) sendBody() {
	err := x.copyBody()
	if err != nil && !errors.Is(err, errBodyUnread) {
		x.origin.conn.Close()
	}
	x.body <- err
}

func (x *exchange) copyBody() error {
	var chunks request.Chunks
	left := x.req.Body.Length
	for {
		if len(x.h.in.ahead()) == 0 {
			if err := x.h.in.more(); err != nil {
				return err
			}
		}
		b := x.h.in.ahead()
		n, done, err := len(b), false, error(nil)
		if x.req.Body.Chunked {
			n, err = chunks.Feed(b)
			done = chunks.Done()
		} else {
			n = int(min(int64(n), left))
			left -= int64(n)
			done = left == 0
		}
		if err != nil {
			return err
		}
		if _, err := x.origin.Write(b[:n]); err != nil {
			return fmt.Errorf("%w: %w", errBodyUnread, err)
		}
		x.h.in.take(n)
		x.h.c.dog.touch()
		if done {
			return nil
		}
	}
}

// errBodyUnread: the origin answered without reading the body, so the connection has no known next request.
var errBodyUnread = errors.New("the answer came before the end of the request body")

// endBody waits for the sender. One that still waits for the client when the answer is complete is stopped.
func (x *exchange) endBody() error {
	defer func() { x.body = nil }()
	select {
	case err := <-x.body:
		return err
	default:
	}
	x.h.in.conn.SetReadDeadline(time.Unix(1, 0))
	x.origin.conn.SetWriteDeadline(time.Unix(1, 0))
	err := <-x.body
	x.h.in.conn.SetReadDeadline(time.Time{})
	x.origin.conn.SetWriteDeadline(time.Time{})
	var bad *request.Refusal
	if err != nil && !errors.As(err, &bad) {
		return errBodyUnread
	}
	return err
}
