package netproxy

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elazarl/goproxy"

	"coworker/netproxy/control"
	"coworker/netproxy/dial"
	"coworker/netproxy/dns"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/inject"
)

// Defaults of control.Limits, and what no configuration changes.
const (
	defaultConnections = 12000
	defaultIdle        = 10 * time.Minute
	defaultTotal       = 24 * time.Hour
	defaultHeadTime    = 30 * time.Second
	endTime            = 5 * time.Second // for the last records
)

// Options is what a proxy is made of. Run closes Control and the listeners.
type Options struct {
	Control     io.ReadWriteCloser
	Proxy       []*net.TCPListener // HTTP proxy and SOCKS5
	Transparent []*net.TCPListener // redirected connections
	// Dialer opens connections; Run sets its Upstream from the configuration.
	Dialer *dial.Dialer
	// Original tells where a redirected connection was going.
	Original func(*net.TCPConn) (netip.AddrPort, error)
	// NameUDP and NameTCP are the sockets of the resolver inside.
	NameUDP []net.PacketConn
	NameTCP []net.Listener
	// Roots verify the origins of opened hosts; nil: those of the system.
	Roots *x509.CertPool
	// Random is for the certificates of opened hosts.
	Random io.Reader
}

type engine struct {
	cfg       *control.Config
	limits    control.Limits
	headTime  time.Duration
	helloTime time.Duration
	probe     hostmatch.Host
	settled   atomic.Bool
	line      *control.Conn
	book      *rulebook
	records   *recorder
	dialer    *dial.Dialer
	http      *goproxy.ProxyHttpServer
	hosts     *inject.Rules
	authority *inject.Authority
	roots     *x509.CertPool
	names     *dns.Names
	original  func(*net.TCPConn) (netip.AddrPort, error)
	listeners []*net.TCPListener
	slots     chan struct{}
	clients   sync.WaitGroup
	broken    chan error // the first error that ends the proxy

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// Run serves one session until the supervisor closes the line (nil), ctx ends, or something breaks. It has closed every
// connection and told every record, as far as the line takes them, when it returns.
func Run(ctx context.Context, o Options) error {
	line := control.NewConn(o.Control, control.MaxConfig)
	defer line.Close()
	listeners := append(append([]*net.TCPListener{}, o.Proxy...), o.Transparent...)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
		for _, c := range o.NameUDP {
			c.Close()
		}
		for _, l := range o.NameTCP {
			l.Close()
		}
	}()
	first, err := line.Receive()
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if first.Config == nil {
		return errors.New("the first message is no configuration")
	}
	if first.Config.IPv6 && min(len(o.Proxy), len(o.Transparent), len(o.NameUDP), len(o.NameTCP)) < 2 {
		return errors.New("IPv6 is configured, and its listeners are missing")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := newEngine(first.Config, line, o)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	e.listeners = listeners
	return e.run(ctx, cancel, o)
}

func newEngine(cfg *control.Config, line *control.Conn, o Options) (*engine, error) {
	e := &engine{
		cfg: cfg, limits: withDefaults(cfg.Limits), headTime: defaultHeadTime, helloTime: defaultHelloTime, line: line, dialer: o.Dialer,
		http: newCarrier(), names: dns.NewNames(), roots: o.Roots, original: o.Original, broken: make(chan error, 1), conns: map[net.Conn]struct{}{},
	}
	e.slots = make(chan struct{}, e.limits.Connections)
	var err error
	if e.book, err = newRulebook(cfg, line.Send); err != nil {
		return nil, err
	}
	if cfg.Probe.Name != "" {
		if e.probe, err = hostmatch.ParseName(cfg.Probe.Name); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
	}
	if u := cfg.Upstream; u != nil {
		with := *o.Dialer
		if with.Upstream, err = dial.NewUpstream(u.URL, u.User, u.Password, u.NoProxy); err != nil {
			return nil, err
		}
		e.dialer = &with
	}
	if e.hosts, err = inject.ParseRules(cfg.Hosts); err != nil || len(cfg.Hosts) == 0 {
		return e, err
	}
	if cfg.CA == nil {
		return nil, errors.New("hosts to open, and no certificate authority")
	}
	if len(cfg.CA.Roots) > 0 {
		if e.roots = x509.NewCertPool(); !e.roots.AppendCertsFromPEM(cfg.CA.Roots) {
			return nil, errors.New("the roots for opened hosts hold no certificate")
		}
	}
	e.authority, err = inject.ParseAuthority(*cfg.CA, o.Random)
	return e, err
}

func withDefaults(l control.Limits) control.Limits {
	if l.Connections <= 0 {
		l.Connections = defaultConnections
	}
	if l.Idle <= 0 {
		l.Idle = defaultIdle
	}
	if l.Total <= 0 {
		l.Total = defaultTotal
	}
	return l
}

func (e *engine) run(ctx context.Context, cancel func(), o Options) error {
	e.records = newRecorder(e.line.SendAll, e.breakOff)
	var accepting sync.WaitGroup
	accepting.Go(func() { e.resolve(ctx, o) })
	for _, l := range o.Proxy {
		accepting.Go(func() { e.accept(ctx, l, flow.Proxy) })
	}
	for _, l := range o.Transparent {
		accepting.Go(func() { e.accept(ctx, l, flow.Transparent) })
	}
	var reading sync.WaitGroup
	reading.Go(func() { e.breakOff(e.listen()) })
	err := e.line.Send(control.Message{Ready: &struct{}{}})
	if err == nil {
		select {
		case err = <-e.broken:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	cancel()
	e.closeAll()
	patience := time.AfterFunc(endTime, func() { e.line.Close() }) // a supervisor that reads no more must not keep us
	defer patience.Stop()
	accepting.Wait()
	e.clients.Wait()
	e.records.close()
	e.line.Close()
	reading.Wait()
	if lineEnded(err) {
		return nil
	}
	return err
}

// resolve serves the resolver inside until ctx ends.
func (e *engine) resolve(ctx context.Context, o Options) {
	r := &dns.Resolver{Names: e.names, Decide: e.judgeName, Report: e.asked, IPv6: e.cfg.IPv6}
	if err := r.Serve(ctx, o.NameUDP, o.NameTCP); err != nil {
		e.breakOff(err)
	}
}

// asked tells a question to the resolver.
func (e *engine) asked(r flow.Record) {
	r.Battery = !e.settled.Load()
	e.records.count(r)
}

// judgeName lets the probe's name pass until settle.
func (e *engine) judgeName(h hostmatch.Host) dns.Decision {
	if e.isProbe(place{h, 443}) {
		return dns.Decision{Allow: true, Reason: "the battery's own name"}
	}
	d := e.book.name(h)
	return dns.Decision{Allow: d.Verdict == hostmatch.Allow, Reason: d.Reason, Needed: d.Needed, Rule: d.Rule}
}

// breakOff notes why the proxy ends; the first reason counts.
func (e *engine) breakOff(err error) {
	select {
	case e.broken <- err:
	default:
	}
}

// listen takes what the supervisor says. Its end of the line ends the session: nil.
func (e *engine) listen() error {
	for {
		m, err := e.line.Receive()
		switch {
		case errors.Is(err, io.EOF), lineEnded(err):
			return nil
		case err != nil:
			return fmt.Errorf("line to the supervisor: %w", err)
		case m.Settle != nil:
			e.settled.Store(true)
		case m.Grant != nil:
			err = e.book.grant(*m.Grant)
		case m.Answer != nil:
			err = e.book.answer(*m.Answer)
		default:
			err = errors.New("a message that only a proxy sends, or a second configuration")
		}
		if err != nil {
			return err
		}
	}
}

// lineEnded says whether the supervisor closed its end: a reset is an end with messages unread, a broken pipe one that a
// record met before the reader did.
func lineEnded(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// accept takes connections while there are slots; more wait in the kernel's queue.
func (e *engine) accept(ctx context.Context, l *net.TCPListener, src flow.Source) {
	for {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := l.AcceptTCP()
		if err != nil {
			<-e.slots
			if ctx.Err() != nil {
				return
			}
			if pause(ctx, err) {
				continue
			}
			e.breakOff(fmt.Errorf("accept on %s: %w", l.Addr(), err))
			return
		}
		e.clients.Go(func() {
			defer func() { <-e.slots }()
			defer e.track(conn)()
			e.serve(ctx, conn, src)
		})
	}
}

// pause waits after an error that passes: a client that was gone before it was accepted, or no descriptor left.
func pause(ctx context.Context, err error) bool {
	var t interface{ Temporary() bool }
	if !errors.As(err, &t) || !t.Temporary() {
		return false
	}
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
	return true
}

// track has the end of the proxy close a connection; the function that it returns ends that.
func (e *engine) track(c net.Conn) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		c.Close()
		return func() {}
	}
	e.conns[c] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.conns, c)
	}
}

func (e *engine) closeAll() {
	for _, l := range e.listeners {
		l.Close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for c := range e.conns {
		c.Close()
	}
}
