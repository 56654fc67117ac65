package netproxy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"coworker/netproxy/check"
	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/inject"
)

// notLive lists the rows that have no form on a socket of the proxy, with the reason.
var notLive = map[string]string{
	"U154": "the proxy has no UDP socket but the resolver's", "U156": "the proxy has no UDP socket but the resolver's", "P154": "the proxy has no UDP socket but the resolver's",
	"U205": "placeholders are not sent by clients; inject decides by its rules", "P156": "a credential of another host is no rule of this one, so it is never added",
	"P157": "a credential for port 80 is refused as a configuration",
}

type liveRow struct {
	check.Row
	Expect string
}

func liveRows(t *testing.T) []liveRow {
	t.Helper()
	var out []liveRow
	for _, path := range []string{"../integration/testdata/corpus/url.jsonl", "check/testdata/rows.jsonl"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var r liveRow
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	return out
}

// TestCorpusLive sends every row through real sockets; what the client and the origin see decides.
func TestCorpusLive(t *testing.T) {
	rows := liveRows(t)
	ran := 0
	left := map[string]bool{}
	for id := range notLive {
		left[id] = true
	}
	for _, r := range rows {
		if notLive[r.ID] != "" {
			delete(left, r.ID)
			continue
		}
		ran++
		t.Run(r.ID, func(t *testing.T) {
			got := runLive(t, r)
			if got != r.Expect {
				t.Errorf("allow %q, %q: %s, want %s", r.Allow, r.Request, got, r.Expect)
			}
		})
	}
	if ran < 290 || len(left) > 0 {
		t.Errorf("%d rows ran; rows that are listed as not live and do not exist: %v", ran, left)
	}
}

const seen = "the origin has seen it"

// liveOrigin answers HTTP in clear, TLS where it can, and anything else with seen.
type liveOrigin struct {
	cert *tls.Certificate
}

func (o liveOrigin) serve(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(c)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 22 && o.cert != nil {
		inside := tls.Server(prefixed{c, in}, &tls.Config{Certificates: []tls.Certificate{*o.cert}})
		o.answer(inside, bufio.NewReader(inside))
		inside.Close()
		return
	}
	if first[0] != 22 && 'A' <= first[0] && first[0] <= 'Z' {
		o.answer(c, in)
		return
	}
	in.Peek(6)
	io.WriteString(c, seen)
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, in)
}

func (liveOrigin) answer(c net.Conn, in *bufio.Reader) {
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				io.WriteString(c, seen)
			}
			return
		}
		if r.Header.Get("Upgrade") != "" {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+seen)
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		body := seen
		if r.Method == "HEAD" {
			body = ""
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Seen: "+r.Host+"\r\nContent-Length: 22\r\n\r\n"+body)
	}
}

type prefixed struct {
	net.Conn
	in *bufio.Reader
}

func (p prefixed) Read(b []byte) (int, error) { return p.in.Read(b) }

type live struct {
	*world
	t     *testing.T
	roots *x509.CertPool
	row   liveRow
	// closed: the proxy did not understand the request, so the client has no connection for the next one.
	closed bool
}

func runLive(t *testing.T, row liveRow) string {
	if _, err := hostmatch.ParseRules(row.Allow, row.Deny); err != nil {
		return configRefused(t, row)
	}
	l := &live{t: t, row: row, roots: x509.NewCertPool()}
	cfg := control.Config{Allow: row.Allow, Deny: row.Deny}
	outside := authority(t)
	origin := liveOrigin{}
	sends := check.Sends(row.Row)
	for _, s := range sends {
		if s.SNI == "" {
			continue
		}
		inside := authority(t)
		host, _ := hostmatch.ParseName(strings.Split(strings.TrimPrefix(row.Request, "CONNECT "), ":")[0])
		ca, err := inside.Encode()
		if err != nil {
			t.Fatal(err)
		}
		cfg.CA, cfg.Hosts = &ca, []control.HostRule{{Host: host.Name(), Port: 443}}
		if s.Secrets {
			cfg.Hosts[0].Secret, cfg.Hosts[0].Header, cfg.Hosts[0].Value = "token", "Authorization", "Bearer 0123456789"
		}
		l.roots.AppendCertsFromPEM(inside.CertificatePEM())
		if origin.cert, err = outside.Leaf(host); err != nil {
			t.Fatal(err)
		}
	}
	l.world = newWorld(t, cfg, func(w *world, o *Options) {
		o.Roots = x509.NewCertPool()
		o.Roots.AppendCertsFromPEM(outside.CertificatePEM())
	})
	lookups := 1
	for name, list := range check.Lookups(row.Row) {
		for _, addrs := range list {
			l.answers[name] = append(l.answers[name], join(addrs))
		}
		lookups = max(lookups, len(list))
	}
	l.serveRaw(origin)
	verdict := ""
	for range lookups {
		for _, s := range sends {
			if verdict = l.one(s); l.closed {
				break
			}
		}
	}
	return verdict
}

func authority(t *testing.T) *inject.Authority {
	t.Helper()
	a, err := inject.NewAuthority(rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// configRefused shows that a proxy does not begin with rules that are none.
func configRefused(t *testing.T, row liveRow) string {
	here, there := socketPair(t)
	c := control.NewConn(here, control.MaxLine)
	defer c.Close()
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), Options{Control: there}) }()
	if err := c.Send(control.Message{Config: &control.Config{Allow: row.Allow, Deny: row.Deny}}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		return "allow"
	}
	return "deny"
}

func (w *world) serveRaw(o liveOrigin) {
	l := listen(w.t)
	w.route("", l.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go o.serve(c)
		}
	}()
	w.t.Cleanup(func() { l.Close(); <-done })
}

func verdict(allowed bool) string {
	if allowed {
		return "allow"
	}
	return "deny"
}

// one runs an exchange on a connection of its own.
func (l *live) one(s check.Sent) string {
	if s.Question != "" {
		return l.question(s.Question)
	}
	if s.Captured != "" {
		return l.captured(s)
	}
	if s.Head == nil {
		return "deny" // it cannot be put into bytes
	}
	c := l.client(l.proxy)
	in := bufio.NewReader(c)
	if strings.HasPrefix(s.Kind, "SOCKS") {
		return l.socks(c, in, s)
	}
	if _, err := c.Write(s.Head); err != nil {
		l.t.Fatal(err)
	}
	if s.Kind == "CONNECT" {
		r, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
		if err != nil || r.StatusCode != 200 {
			return "deny"
		}
		return l.inside(c, in, s)
	}
	c.CloseWrite()
	return verdict(l.lastSeen(in, s))
}

// lastSeen says whether the last answer is the origin's. A row of several requests in one head has an answer for each.
func (l *live) lastSeen(in *bufio.Reader, s check.Sent) bool {
	all, _ := io.ReadAll(in)
	at := bytes.LastIndex(all, []byte("HTTP/1.1 "))
	l.closed = at >= 0 && bytes.HasPrefix(all[at:], []byte("HTTP/1.1 40")) && !bytes.HasPrefix(all[at:], []byte("HTTP/1.1 403"))
	switch {
	case at < 0:
		return false
	case s.Kind == "HEAD":
		return bytes.Contains(all[at:], []byte("X-Seen"))
	}
	return bytes.Contains(all[at:], []byte(seen)) || bytes.HasPrefix(all[at:], []byte("HTTP/1.1 101")) || unfinished(all[at:], s)
}

// unfinished: the body of the row has no end, so the proxy waits for the rest of an allowed request.
func unfinished(answer []byte, s check.Sent) bool {
	return bytes.HasPrefix(answer, []byte("HTTP/1.1 502")) && !bytes.HasSuffix(s.Head, []byte("0\r\n\r\n"))
}

func (l *live) socks(c *net.TCPConn, in *bufio.Reader, s check.Sent) string {
	if s.Head[0] == 5 {
		if _, err := c.Write([]byte{5, 1, 0}); err != nil {
			l.t.Fatal(err)
		}
		io.ReadFull(in, make([]byte, 2))
	}
	c.Write(s.Head)
	reply := make([]byte, 10)
	if _, err := io.ReadFull(in, reply); err != nil || reply[0] != 5 || reply[1] != 0 {
		return "deny"
	}
	return l.inside(c, in, s)
}

func (l *live) captured(s check.Sent) string {
	host, port, err := hostmatch.ParseAuthority(s.Captured, 0)
	if err != nil {
		return "deny"
	}
	l.redirect(host.String(), port)
	conn, err := net.Dial("tcp4", l.clear)
	if err != nil {
		return "deny" // the reset came before connect returned
	}
	c := conn.(*net.TCPConn)
	defer c.Close()
	return l.inside(c, bufio.NewReader(c), s)
}

// inside goes on in a tunnel that is open.
func (l *live) inside(c *net.TCPConn, in *bufio.Reader, s check.Sent) string {
	switch {
	case len(s.Inner) > 0 && s.SNI != "":
		return l.encrypted(c, in, s)
	case len(s.Inner) > 0:
		for _, m := range s.Inner {
			c.Write(m)
		}
	case len(s.First) > 0:
		c.Write(s.First)
	case s.Captured != "":
		c.CloseWrite()
		_, err := io.ReadAll(in)
		return verdict(err == nil) // a refusal is a reset
	default:
		return "allow" // the row ends with the open tunnel
	}
	c.CloseWrite()
	all, _ := io.ReadAll(in)
	at := bytes.LastIndex(all, []byte("HTTP/1.1 "))
	return verdict(bytes.Contains(all[max(at, 0):], []byte(seen)))
}

// encrypted speaks TLS that the proxy opens.
func (l *live) encrypted(c *net.TCPConn, in *bufio.Reader, s check.Sent) string {
	inside := tls.Client(prefixed{c, in}, &tls.Config{ServerName: s.SNI, RootCAs: l.roots, NextProtos: s.ALPN})
	if inside.Handshake() != nil {
		return "deny"
	}
	for _, m := range s.Inner {
		inside.Write(m)
	}
	inside.CloseWrite()
	all, _ := io.ReadAll(inside)
	at := bytes.LastIndex(all, []byte("HTTP/1.1 "))
	return verdict(at >= 0 && bytes.Contains(all[at:], []byte(seen)))
}

func (l *live) question(q string) string {
	kind, name, _ := strings.Cut(q, " ")
	if kind == "AAAA" {
		kind = "A" // the world has no IPv6; the name is what is judged
	}
	return verdict(len(l.lookup(kind, name)) > 0)
}

// The live check can fail: with a rule too many, or an origin that answers nothing, it says the opposite.
func TestCorpusLiveCanFail(t *testing.T) {
	refused := liveRow{Row: check.Row{Allow: []string{"evil.example"}, Request: "CONNECT evil.example:443 | SNI=evil.example"}}
	if got := runLive(t, refused); got != "allow" {
		t.Errorf("with the rule: %s", got)
	}
	refused.Allow = nil
	if got := runLive(t, refused); got != "deny" {
		t.Errorf("without: %s", got)
	}
	smuggled := liveRow{Row: check.Row{Allow: []string{"a.example:80"}, Request: "POST http://a.example/ HTTP/1.1 | Host: a.example | Content-Length: 2 | BODY okGET http://b.example/ HTTP/1.1\\r\\nHost: b.example\\r\\n\\r\\n"}}
	if got := runLive(t, smuggled); got != "deny" {
		t.Errorf("a second request in a body: %s", got)
	}
	smuggled.Allow = append(smuggled.Allow, "b.example:80")
	if got := runLive(t, smuggled); got != "allow" {
		t.Errorf("with a rule for it: %s", got)
	}
}
