package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/enforce/probe"
	"coworker/runtime/wire"
)

// aloneLimit bounds the attempts of one half. They take some milliseconds.
const aloneLimit = 20 * time.Second

// couldHarden says whether it is worth showing each half alone. Without kernel programs there is no second one, a live tree
// without the guard only sweeps, and what nobody bounds is not hardened either; the attempts cost some milliseconds.
func (s *Session) couldHarden() bool {
	state, limits := s.ward.State(), s.options.Spec.Limits
	bounded := limits.CPUs > 0 && limits.Time > 0
	return bounded && s.cell.Alone != nil && (state.Guard.On() || s.options.Staged && state.Egress.On())
}

// halves shows what either half of the mechanisms keeps without the other. What cannot be shown is a probe that is missing,
// and the level says so; an error is one that leaves something behind.
func (s *Session) halves(ctx context.Context) ([]enforce.Probe, error) {
	if !s.couldHarden() {
		return nil, nil
	}
	return s.showHalves(ctx)
}

func (s *Session) showHalves(ctx context.Context) (probes []enforce.Probe, err error) {
	ctx, cancel := context.WithTimeout(ctx, aloneLimit)
	defer cancel()
	targets, err := newAloneCanaries(canaryParent(s.options.Spec.HomeStore, s.id), s.id, s.options.Spec.Identity)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, targets.close()) }()
	second, idle, err := s.secondAlone(ctx, targets.AloneTargets)
	if err != nil {
		return nil, fmt.Errorf("show Landlock and kernel programs alone: %w", err)
	}
	if err := s.cell.Settled(); err != nil {
		return nil, err
	}
	namespaces, err := s.cell.Alone(targets.AloneTargets, s.options.Spec.Literals)
	if err != nil {
		return nil, fmt.Errorf("show mounts and namespaces alone: %w", err)
	}
	return targets.plain(probe.Idle(append(namespaces, second...), idle)), err
}

// secondAlone runs the attempts in a process of the session's user, in the host's own namespaces and the session's group.
func (s *Session) secondAlone(ctx context.Context, t enforce.AloneTargets) ([]enforce.Probe, map[string]string, error) {
	conn, peer, err := wire.Pair("alone-wire")
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	p, ended, err := s.startAlone(peer)
	peer.Close()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		conn.Close()
		p.Kill() // an error means that it has ended already
		<-ended
	}()
	stop := context.AfterFunc(ctx, func() { p.Kill() })
	defer stop()
	var ready wire.AloneReady
	if err := exchange(conn, wire.TypeAloneBegin, wire.AloneBegin{Spec: s.options.Spec, Targets: t}, wire.TypeAloneReady, &ready); err != nil {
		return nil, nil, err
	}
	if err := s.ward.Join(p.Pid); err != nil {
		return nil, nil, err
	}
	var done wire.AloneDone
	err = exchange(conn, wire.TypeAloneGo, wire.Empty{}, wire.TypeAloneDone, &done)
	return done.Probes, ready.Idle, err
}

// exchange sends one message and waits for the one answer that may follow.
func exchange(conn *wire.Conn, request wire.Type, body any, want wire.Type, v any) error {
	if err := conn.Send(request, body); err != nil {
		return err
	}
	frame, err := conn.Receive()
	if err != nil {
		return fmt.Errorf("no answer to %s: %w", request, err)
	}
	defer frame.Close()
	if frame.Type == wire.TypeFailed {
		failed := &wire.Failed{}
		if err := frame.Decode(failed); err != nil {
			return err
		}
		return failed
	}
	if frame.Type != want || len(frame.Files) != 0 {
		return fmt.Errorf("%w: %s answered %s", wire.ErrProtocol, frame.Type, request)
	}
	return frame.Decode(v)
}

// startAlone forks the process on a thread that outlives it (parent-death signal). The channel is closed when it has ended.
func (s *Session) startAlone(peer *os.File) (*os.Process, <-chan struct{}, error) {
	type started struct {
		p   *os.Process
		err error
	}
	result, ended := make(chan started), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := s.forkAlone(peer)
		result <- started{p, err}
		if err == nil {
			defer close(ended)
			p.Wait() // how it ended does not matter: what it said before does
		}
	}()
	r := <-result
	return r.p, ended, r.err
}

func (s *Session) forkAlone(peer *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if id := s.options.Spec.Identity; os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.GID), Groups: []uint32{}}
	}
	return os.StartProcess("/proc/self/fd/4", []string{"coworker-cell", "alone"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, s.crash.writer, peer, s.options.Program}, Sys: attr,
	})
}

// aloneCanaries are real things of the host that the session's user could use.
type aloneCanaries struct {
	enforce.AloneTargets
	open    []interface{ Close() error }
	drained sync.WaitGroup
}

// canaryParent is where the folder of the canaries lies: beside the private home, out of sight inside. The name of a socket
// holds 107 bytes (unix(7)); where that is too deep it is the host's /tmp, which no session shows.
func canaryParent(store, session string) string {
	const longest = 107
	parent := filepath.Dir(store)
	if len(filepath.Join(parent, "alone-"+session, "datagram")) > longest {
		return "/tmp"
	}
	return parent
}

func newAloneCanaries(parent, session string, id enforce.Identity) (_ *aloneCanaries, err error) {
	c := &aloneCanaries{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make canaries: %w", err), c.close())
		}
	}()
	c.Folder = filepath.Join(parent, "alone-"+session)
	c.File, c.Stream, c.Datagram = c.Folder+"/file", c.Folder+"/stream", c.Folder+"/datagram"
	c.AbstractName, c.AbstractData = "coworker-"+randomName(16), "coworker-"+randomName(16)
	if err := os.Mkdir(c.Folder, 0o700); err != nil {
		c.Folder = ""
		return nil, err
	}
	if err := os.WriteFile(c.File, []byte(randomName(16)), 0o600); err != nil {
		return nil, err
	}
	if err := c.listen(); err != nil {
		return nil, err
	}
	for _, name := range []string{c.File, c.Stream, c.Datagram, c.Folder} {
		if os.Geteuid() != 0 {
			break
		}
		if err := os.Lchown(name, id.UID, id.GID); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *aloneCanaries) listen() error {
	for _, name := range []string{c.Stream, "@" + c.AbstractName} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false) // the name goes with the folder
		c.open = append(c.open, l)
		c.drain(l)
	}
	for _, name := range []string{c.Datagram, "@" + c.AbstractData} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name})
		if err != nil {
			return err
		}
		c.open = append(c.open, l)
	}
	four, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	c.open, c.Port4 = append(c.open, four), four.Addr().(*net.TCPAddr).Port
	if six, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback}); err == nil {
		c.open, c.Port6 = append(c.open, six), six.Addr().(*net.TCPAddr).Port
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	c.open, c.PortUDP = append(c.open, udp), udp.LocalAddr().(*net.UDPAddr).Port
	return nil
}

// drain takes connections, so that a full queue is not what stops the next attempt.
func (c *aloneCanaries) drain(l *net.UnixListener) {
	c.drained.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
}

// plain takes what is random out of the details, so that the same walls give the same attestation.
func (c *aloneCanaries) plain(probes []enforce.Probe) []enforce.Probe {
	return plain(probes, probe.Targets{StateFile: c.File, PathSocket: c.Stream, AbstractSocket: c.AbstractName, Scratch: c.Datagram})
}

func (c *aloneCanaries) close() error {
	var errs []error
	for _, o := range c.open {
		errs = append(errs, o.Close())
	}
	c.drained.Wait()
	if c.Folder != "" {
		errs = append(errs, os.RemoveAll(c.Folder))
	}
	return errors.Join(errs...)
}
