package netproxy

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"coworker/netproxy/control"
	"coworker/netproxy/dial"
	"coworker/netproxy/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy with a supervisor and an outside made of values: any address leads to the test's listeners.
type world struct {
	t     testing.TB
	e     *control.Conn // the supervisor's end
	proxy string
	clear string // the transparent port
	ended chan error

	mu      sync.Mutex
	records []flow.Record
	changed chan struct{} // closed and renewed by each record
	asks    chan control.Ask

	answers map[string][]string // name → answers of later lookups, comma lists; the last stays
	routes  map[string]string   // address:port → address of a listener; "" leads everywhere else
	dialled []string
	target  netip.AddrPort // of redirected connections
	dns     string         // address of the resolver inside
}

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newWorld starts a proxy; change, if not nil, may change its options before.
func newWorld(t testing.TB, cfg control.Config, change func(*world, *Options)) *world {
	t.Helper()
	w := &world{t: t, ended: make(chan error, 1), changed: make(chan struct{}), asks: make(chan control.Ask, 64),
		answers: map[string][]string{}, routes: map[string]string{}}
	here, there := socketPair(t)
	w.e = control.NewConn(here, control.MaxLine)
	p, c := listen(t), listen(t)
	w.proxy, w.clear = p.Addr().String(), c.Addr().String()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.dns = udp.LocalAddr().String()
	o := Options{
		Control: there, Proxy: []*net.TCPListener{p}, Transparent: []*net.TCPListener{c}, Random: rand.Reader,
		Dialer:   &dial.Dialer{Resolve: w.resolve, Connect: w.connect, Own: func() ([]netip.Addr, error) { return nil, nil }},
		Original: func(*net.TCPConn) (netip.AddrPort, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.target, nil },
		NameUDP:  []net.PacketConn{udp},
	}
	if change != nil {
		change(w, &o)
	}
	go func() { w.ended <- Run(context.Background(), o) }()
	if err := w.e.Send(control.Message{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	ready, err := w.e.Receive()
	if err != nil || ready.Ready == nil {
		t.Fatalf("ready: %v %v, run: %v", ready, err, <-w.ended)
	}
	read := make(chan struct{})
	go func() { defer close(read); w.read() }()
	t.Cleanup(func() {
		here.CloseWrite()
		defer w.e.Close()
		select {
		case err := <-w.ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the proxy does not end")
		}
		<-read
	})
	return w
}

// socketPair is a stream in both directions, as the supervisor's socket is.
func socketPair(t testing.TB) (a *net.TCPConn, b net.Conn) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	a, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func (w *world) read() {
	for {
		m, err := w.e.Receive()
		if err != nil {
			return
		}
		if m.Ask != nil {
			w.asks <- *m.Ask
		}
		if m.Flow == nil {
			continue
		}
		w.mu.Lock()
		w.records = append(w.records, *m.Flow)
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, ok := w.answers[name]
	if !ok {
		return []netip.Addr{netip.MustParseAddr("140.82.112.3")}, nil
	}
	if len(list) > 1 {
		w.answers[name] = list[1:]
	}
	var out []netip.Addr
	for part := range strings.SplitSeq(list[0], ",") {
		a, err := netip.ParseAddr(part)
		if err != nil {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		out = append(out, a)
	}
	return out, nil
}

func (w *world) connect(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	at, ok := w.routes[to.String()]
	if !ok {
		at = w.routes[""]
	}
	w.mu.Unlock()
	if at == "" {
		return nil, fmt.Errorf("no route to %s", to)
	}
	var d net.Dialer
	return d.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.MustParseAddrPort(at))
}

// record waits for a record that is like.
func (w *world) record(like func(flow.Record) bool) flow.Record {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		all, changed := w.records, w.changed
		w.mu.Unlock()
		for _, r := range all {
			if like(r) {
				return r
			}
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("no such record among %+v", all)
		}
	}
}

// origin serves HTTP for every address that has no route of its own.
func (w *world) origin(h http.Handler) *http.Server {
	l := listen(w.t)
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	w.route("", l.Addr().String())
	w.t.Cleanup(func() { s.Close(); <-done })
	return s
}

func (w *world) route(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[from] = to
}

// client is a raw connection to a port of the proxy.
func (w *world) client(to string) *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp4", to)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// ask sends text on a new connection to the proxy port and gives everything that comes back.
func (w *world) ask(text string) string {
	w.t.Helper()
	c := w.client(w.proxy)
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	c.CloseWrite()
	b, _ := io.ReadAll(c)
	return string(b)
}

// exchange sends a request on c and reads one answer.
func (w *world) exchange(c io.ReadWriter, in *bufio.Reader, text string) (*http.Response, string) {
	w.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("%q: %v", text, err)
	}
	if method == "CONNECT" && r.StatusCode == 200 {
		return r, ""
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatalf("%q: body: %v", text, err)
	}
	return r, string(b)
}

// lookup asks the resolver inside; an answer without addresses is nil.
func (w *world) lookup(kind, name string) []netip.Addr {
	w.t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[kind])
	r, err := dns.Exchange(m, w.dns)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []netip.Addr
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			ip, _ := netip.AddrFromSlice(a.A)
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// redirect has later connections to the transparent port look as if they were going to a name or an address.
func (w *world) redirect(host string, port uint16) {
	w.t.Helper()
	a, err := netip.ParseAddr(host)
	if err != nil {
		list := w.lookup("A", host)
		if len(list) == 0 {
			w.t.Fatalf("%s has no synthetic address", host)
		}
		a = list[0]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = netip.AddrPortFrom(a, port)
}
