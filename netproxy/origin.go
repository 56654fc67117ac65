package netproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/elazarl/goproxy"

	"coworker/netproxy/dial"
	"coworker/netproxy/request"
)

const (
	maxAnswerHead = 256 << 10
	maxInterim    = 16 // 1xx answers before the final one
)

// origin is a connection to a server, with what it was opened for.
type origin struct {
	conn       net.Conn // TLS over tcp, or tcp
	tcp        *net.TCPConn
	place      place
	rule       string
	addr       string
	resolvedBy string
	// via and authorization are for a proxy further out, see dial.Result.
	via, authorization string
	untrack            func()
	br                 *bufio.Reader
	headLeft           int64 // octets that the head of an answer may still have; negative: no limit
	in, out            int64
	inBefore           int64
	outBefore          int64
	lastClose          bool // the last answer ends the connection
	secured            bool // conn is TLS
}

var answers = bufioPool{size: 8 << 10}

func newOrigin(to dial.Result, a *attempt) *origin {
	o := &origin{via: to.Via, authorization: to.Authorization, conn: to.Conn, tcp: to.Conn, place: a.place, rule: a.rule.Rule, addr: a.rec.Addr, resolvedBy: a.rec.ResolvedBy, headLeft: -1}
	o.br = answers.get(o)
	return o
}

func (o *origin) close() {
	if o.br != nil {
		answers.put(o.br)
		o.br = nil
	}
	o.conn.Close()
	if o.untrack != nil {
		o.untrack()
		o.untrack = nil
	}
}

// serves says whether a later request may use the connection.
func (o *origin) serves(a *attempt) bool {
	return o.place == a.place && o.rule == a.rule.Rule && !o.lastClose && o.br != nil && o.br.Buffered() == 0 && quiet(o.tcp)
}

// spent says that the connection must not be used again.
func (o *origin) spent() bool { return o.lastClose || o.br == nil || o.br.Buffered() > 0 }

func (o *origin) begin() { o.inBefore, o.outBefore = o.in, o.out }

var errHeadSize = errors.New("the head of the answer is longer than 256 KiB")

func (o *origin) Read(p []byte) (int, error) {
	if o.headLeft == 0 {
		return 0, errHeadSize
	}
	if o.headLeft > 0 && int64(len(p)) > o.headLeft {
		p = p[:o.headLeft]
	}
	n, err := o.conn.Read(p)
	o.in += int64(n)
	if o.headLeft > 0 {
		o.headLeft -= int64(n)
	}
	return n, err
}

func (o *origin) Write(p []byte) (int, error) {
	n, err := o.conn.Write(p)
	o.out += int64(n)
	return n, err
}

func (o *origin) send(head *[]byte) error {
	defer heads.Put(head)
	_, err := o.Write(*head)
	return err
}

// answer reads the head of the final answer; interim ones are passed on.
func (o *origin) answer(r *http.Request, w *response) (*http.Response, error) {
	for range maxInterim {
		if err := o.await(w.x); err != nil {
			return nil, err
		}
		o.headLeft = maxAnswerHead
		resp, err := http.ReadResponse(o.br, r)
		o.headLeft = -1
		if err != nil {
			return nil, readable(err)
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			o.lastClose = resp.Close || resp.ContentLength < 0 && !chunked(resp)
			o.fix(resp)
			return resp, nil
		}
		if resp.StatusCode != http.StatusContinue && !w.x.h.opened { // 100 is about the connection behind; none is filtered
			dropHop(resp.Header)
			w.interim(resp)
		}
	}
	return nil, errors.New("it sends interim answers without end")
}

const (
	awaitStep = time.Second
	halfSteps = 30 // for a client that ended its half after the request and waits
)

// errLeft: there is nobody to answer.
var errLeft = errors.New("the client left before the answer")

// await waits for the first octet of an answer and looks after the client meanwhile: one that left frees what it holds.
func (o *origin) await(x *exchange) error {
	defer o.conn.SetReadDeadline(time.Time{})
	for step := 0; ; step++ {
		o.conn.SetReadDeadline(time.Now().Add(awaitStep))
		_, err := o.br.Peek(1)
		var late net.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &late) && late.Timeout() && x.h.c.ctx.Err() == nil:
		default:
			return ended(err)
		}
		if x.body != nil && len(x.body) == 0 {
			continue // its sender sees the client
		}
		if gone, half := departed(x.h.c.conn); gone || half && step >= halfSteps {
			return errLeft
		}
	}
}

func ended(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("it closed the connection")
	}
	return err
}

// readable leaves out what net/http quotes of the answer, which may be anything, a credential among it.
func readable(err error) error {
	var netError net.Error
	if err == io.EOF || err == io.ErrUnexpectedEOF || errors.As(err, &netError) {
		return ended(err)
	}
	if errors.Is(err, errHeadSize) {
		return errHeadSize
	}
	return errors.New("its answer is not HTTP/1.1")
}

func chunked(r *http.Response) bool {
	return len(r.TransferEncoding) == 1 && r.TransferEncoding[0] == "chunked"
}

// hop are fields of an answer that are about the connection it came on (RFC 9110 section 7.6.1).
var hop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate", "Proxy-Authentication-Info"}

func dropHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "Content-Length" && name != "Content-Type" && name != "Content-Encoding" {
				delete(h, name)
			}
		}
	}
	for _, name := range hop {
		delete(h, name)
	}
}

func isWebSocket(h http.Header) bool {
	return len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], "websocket")
}

// fields are what is sent on of the client's fields, in its order and spelling.
func (x *exchange) fields() []request.Field {
	out := make([]request.Field, 0, len(x.req.Fields)+2)
	for _, f := range x.req.Fields {
		if x.req.HandlingOf(f.Name) == request.Forward && !strings.EqualFold(f.Name, "Expect") {
			out = append(out, f)
		}
	}
	if x.h.opened {
		return x.add.Apply(out)
	}
	return out
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// newCarrier is goproxy with everything replaced that could reach the network by itself: its transport reads proxy
// variables, its CONNECT dials, its certificate authority's key is public.
func newCarrier() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	nowhere := func(string, string) (net.Conn, error) { return nil, errors.New("goproxy dials nothing") }
	p.Tr = &http.Transport{
		DialContext:       func(_ context.Context, n, a string) (net.Conn, error) { return nowhere(n, a) },
		DialTLSContext:    func(_ context.Context, n, a string) (net.Conn, error) { return nowhere(n, a) },
		DisableKeepAlives: true, DisableCompression: true,
	}
	p.ConnectDial, p.ConnectDialWithReq = nowhere, nil
	p.Logger, p.KeepAcceptEncoding, p.AllowHTTP2 = silent{}, true, false
	p.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	p.OnRequest().HandleConnect(goproxy.AlwaysReject)
	trip := goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
		x, ok := r.Context().Value(exchangeKey{}).(*exchange)
		if !ok {
			return nil, errNoAnswer
		}
		return x.roundTrip(r)
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = trip
		return r, nil
	})
	return p
}

type silent struct{}

func (silent) Printf(string, ...any) {}
