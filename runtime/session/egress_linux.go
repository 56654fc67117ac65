package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/landlock"
	"coworker/enforce/probe"
	"coworker/enforce/redirect"
	"coworker/netproxy/control"
	"coworker/netproxy/flow"
	"coworker/platform/selfconfine"
)

// Egress says what a session with a network may reach, and who is asked about the rest.
type Egress struct {
	Config  control.Config // all but Probe and IPv6, which the session fills in
	Program *os.File       // coworker-proxy, from OpenProxy; stays owned by the caller
	Environ []string       // variables of the proxy process: where the host's certificates are
	// Ask decides on a connection that waits; nil if nobody can be asked. It is called in a goroutine of its own, one at a
	// time, and gives up when ctx ends.
	Ask func(ctx context.Context, q control.Ask) bool
}

// egress is the running proxy of a session.
type egress struct {
	session *Session
	proxy   *proxyProcess
	conn    *control.Conn
	line    *net.UnixConn // what conn reads and writes; closed by conn
	probe   control.Probe
	ledger  ledger

	settled    chan struct{} // closed when the walls are proved: what came before was the battery
	begun      chan error    // gets the outcome of start; nil before begin
	startEnded chan struct{}
	admitted   chan struct{} // closed when the cell and the proxy both stand
	ready      chan struct{}
	ended      chan struct{} // closed when the proxy says nothing more
	readyOnce  sync.Once
	asks       chan control.Ask
	work       sync.WaitGroup
	asking     context.Context // ends when no question may wait any more
	stop       context.CancelFunc
	closing    chan struct{}
	mu         sync.Mutex
	endErr     error
}

// proxyLimit bounds how long a proxy may take to start and to end.
const proxyLimit = 10 * time.Second

// maxAsks bounds the questions that wait for the person; more connections are refused by the proxy's own time limit.
const maxAsks = 64

// newEgress prepares the proxy of a session; the name in it goes to the battery.
func (s *Session) newEgress() *egress {
	if !s.options.Spec.Net.Egress() {
		return nil
	}
	asking, stop := context.WithCancel(context.Background())
	return &egress{
		session: s, asking: asking, stop: stop, probe: control.Probe{Name: randomName(8) + ".probe.internal", Token: randomName(16)},
		settled: make(chan struct{}), ready: make(chan struct{}), startEnded: make(chan struct{}), admitted: make(chan struct{}), ended: make(chan struct{}), closing: make(chan struct{}),
		asks: make(chan control.Ask, maxAsks),
	}
}

// begin starts the proxy while the cell starts.
func (e *egress) begin(made *enforce.Egress) {
	if e == nil {
		made.Close()
		return
	}
	e.begun = make(chan error, 1)
	e.work.Go(func() {
		e.begun <- e.start(made)
		close(e.startEnded)
	})
}

// started waits until the proxy accepts connections.
func (e *egress) started() error {
	switch {
	case e == nil:
		return nil
	case e.begun == nil:
		return errors.New("bug: a session with a network, and the backend made no sockets for its proxy")
	}
	if err := <-e.begun; err != nil {
		return err
	}
	// From here on there is a cell to end. Whoever comes second, this or listen, sees what the first has closed.
	close(e.admitted)
	select {
	case <-e.ended:
		return e.died(nil)
	default:
		return nil
	}
}

// start forks the proxy on the sockets that were made inside, and waits until it accepts connections.
func (e *egress) start(made *enforce.Egress) error {
	if e.session.options.Egress == nil {
		made.Close()
		return errors.New("bug: a session with a network and no rules for its proxy")
	}
	defer made.Close() // from here on only the proxy has them
	conn, peer, err := controlPair()
	if err != nil {
		return err
	}
	e.proxy, err = startProxy(e.session.options.Egress, append([]*os.File{peer}, made.Sockets...), e.session.id)
	err = errors.Join(err, peer.Close()) // now: while this end is open here, the end of the proxy is not seen
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	e.line, e.conn = conn, control.NewConn(conn, control.MaxLine)
	e.ledger.start(e)
	e.work.Go(e.listen)
	e.work.Go(func() { e.answer(e.asking) })
	config := e.session.options.Egress.Config
	config.Probe, config.IPv6 = e.probe, made.IPv6
	if err := e.conn.Send(control.Message{Config: &config}); err != nil {
		return e.died(err)
	}
	select {
	case <-e.ready:
		return e.proxy.moreDescriptors()
	case <-e.ended:
		return e.died(nil)
	case <-time.After(proxyLimit):
		return fmt.Errorf("the proxy was not ready within %v", proxyLimit)
	}
}

// notes say what this kernel cannot do for the proxy.
func (e *egress) notes() []string {
	if e == nil {
		return nil
	}
	abi, _ := landlock.ABI() // why there is none makes no difference to the proxy
	if lacking := selfconfine.Lacking(abi); lacking != "" {
		return []string{"the process of the proxy is less confined: " + lacking}
	}
	return nil
}

// targets is what the battery asks the proxy for. A name beside the probe's must be refused, unless every name is allowed.
func (e *egress) targets(made *enforce.Egress) *probe.Egress {
	if e == nil {
		return nil
	}
	t := &probe.Egress{
		AllowedName: e.probe.Name, Token: e.probe.Token, ProxyPort: redirect.ProxyPort, TransparentPort: redirect.TransparentPort,
		IPv6: made.IPv6, Transparent: made.Transparent,
	}
	if e.session.options.Spec.Net == enforce.NetAllowlist && e.session.options.Egress.Config.Ask == 0 {
		t.DeniedName = "denied-" + e.probe.Name
	}
	return t
}

// died says why the proxy ended, as far as it is known.
func (e *egress) died(err error) error {
	how := e.proxy.howEnded()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		err = e.endErr
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("the proxy ended: %s", how)
	}
	return fmt.Errorf("the proxy ended: %s (%w)", how, err)
}

// settle ends the time of the battery.
func (e *egress) settle() error {
	if e == nil {
		return nil
	}
	close(e.settled)
	if err := e.conn.Send(control.Message{Settle: &struct{}{}}); err != nil {
		return e.died(err)
	}
	return nil
}

// listen takes what the proxy says. A proxy that ends, or breaks the rules, ends the session: nothing inside may believe
// that it has a network that nobody looks after.
func (e *egress) listen() {
	err := e.receive()
	e.mu.Lock()
	e.endErr = err
	e.mu.Unlock()
	close(e.ended)
	select {
	case <-e.admitted:
	default:
		return // started says it
	}
	select {
	case <-e.closing:
	default:
		e.session.fail(&EgressError{Err: e.died(nil)})
	}
}

func (e *egress) receive() error {
	for {
		m, err := e.conn.Receive()
		if err != nil {
			return err
		}
		switch {
		case m.Ready != nil:
			e.readyOnce.Do(func() { close(e.ready) })
		case m.Flow != nil:
			if !e.battery(m.Flow) {
				e.ledger.add(*m.Flow)
			}
		case m.Ask != nil:
			select {
			case e.asks <- *m.Ask:
			default: // it waits in the proxy until its time is up, which is a no
			}
		default:
			return errors.New("the proxy sent a message that is not its to send")
		}
	}
}

// battery reports whether a record is about the probes, not about commands: equal ones are summed, and told later.
func (e *egress) battery(r *flow.Record) bool {
	select {
	case <-e.settled:
		return r.Battery
	default:
		return true
	}
}

// answer puts questions to the person, one at a time.
func (e *egress) answer(ctx context.Context) {
	for {
		select {
		case q := <-e.asks:
			yes := e.session.options.Egress.Ask != nil && e.session.options.Egress.Ask(ctx, q)
			if e.conn.Send(control.Message{Answer: &control.Answer{ID: q.ID, Allow: yes}}) != nil {
				return // the proxy is gone, and listen says so
			}
		case <-ctx.Done():
			return
		}
	}
}

// stopAsking ends a question that waits for the person: the session is about to end.
func (e *egress) stopAsking() {
	if e != nil && e.stop != nil {
		e.stop()
	}
}

// close ends the proxy. The cell is dead by then, so its tunnels end, and the last records come before the end of the line.
func (e *egress) close() error {
	if e == nil || e.begun == nil {
		return nil
	}
	select { // a proxy that is still starting while the session fails is ended like any other
	case <-e.startEnded:
	case <-time.After(2 * proxyLimit):
		return errors.New("the proxy neither started nor failed in time")
	}
	if e.conn == nil {
		return nil
	}
	close(e.closing)
	e.stop()
	err := e.line.CloseWrite()
	if errors.Is(err, unix.ENOTCONN) {
		err = nil // it is gone already
	}
	select {
	case <-e.ended:
	case <-time.After(proxyLimit):
		err = errors.Join(err, fmt.Errorf("the proxy did not end within %v", proxyLimit))
	}
	err = errors.Join(err, e.proxy.kill(), e.conn.Close())
	e.work.Wait()
	return errors.Join(err, e.ledger.close())
}

// Egress lists what the session reached or tried to, equal ones summed, in the order in which they first came. more
// connections are on record and did not fit into the list.
func (s *Session) Egress() (list []flow.Record, more int) {
	if s.egress == nil {
		return nil, 0
	}
	return s.egress.ledger.list(), s.egress.ledger.beyond()
}

// Grant allows one more rule in a running session.
func (s *Session) Grant(rule string) error {
	if s.egress == nil {
		return fmt.Errorf("allow %q: this session has no network", rule)
	}
	return s.egress.conn.Send(control.Message{Grant: &rule})
}

// proxyDigest names the proxy of a session that has one.
func (s *Session) proxyDigest() string {
	if s.egress == nil {
		return ""
	}
	return ProxyDigest
}
