package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/cgroup"
	"coworker/enforce/container"
	"coworker/enforce/enforcetest"
	"coworker/enforce/native"
	"coworker/runtime/ward"
	"coworker/runtime/wire"
)

// containerBackend has the helper coworker-box make a container, in which the keeper builds the same root for the same cell as
// in the backend native.
type containerBackend struct{ labels container.Labels }

var _ enforce.Backend = containerBackend{}

func (containerBackend) Name() enforce.BackendName { return enforce.Container }

// WithLabels gives the backend container labels for its processes; the others cannot have any.
func WithLabels(b enforce.Backend, l container.Labels) (enforce.Backend, error) {
	if l == (container.Labels{}) {
		return b, nil
	}
	if b.Name() != enforce.Container {
		return nil, &RefusedError{Cause: fmt.Errorf("the settings name labels ([container]), and the backend %s sets none", b.Name()), Remedy: "set backend = \"container\", or remove the labels"}
	}
	if why := l.Missing(); why != "" {
		return nil, &RefusedError{Cause: errors.New(why), Remedy: "remove the keys of [container] from the settings, or boot with it"}
	}
	return containerBackend{labels: l}, nil
}

func (containerBackend) Available(ctx context.Context) enforce.Availability {
	a := container.Available(native.Available(ctx))
	if !a.OK {
		return a
	}
	program, err := openBox()
	if err != nil {
		return enforce.Availability{Backend: enforce.Container, Cause: err.Error(), Remedy: buildBox}
	}
	program.Close() // it was only read
	return a
}

const buildBox = "build all binaries together with `make box`, which needs a C compiler, and keep coworker-box beside coworker"

func openBox() (*os.File, error) {
	if BoxDigest == "" {
		return nil, errors.New("this build of coworker comes without coworker-box")
	}
	return OpenBox()
}

// lender finds out where a ward holds the session's control group, if it is one of this process.
func lender(w ward.Ward) func() (string, error) {
	if local, ok := w.(interface{ Lend() (string, error) }); ok {
		return local.Lend
	}
	return func() (string, error) { return "", nil }
}

// Start has the helper start, and then walks through the keeper's sequence.
func (b containerBackend) Start(ctx context.Context, l enforce.Launch) (*enforce.Cell, error) {
	if a := container.Available(enforce.Availability{OK: true}); !a.OK {
		return nil, &RefusedError{Cause: fmt.Errorf("backend container: %s", a.Cause), Remedy: a.Remedy}
	}
	group, err := l.Lend()
	if err != nil {
		return nil, err
	}
	if group == "" {
		return nil, &RefusedError{Cause: errors.New("backend container: no control group can be made here"), Remedy: "see `coworker sandbox status`, or use the backend native"}
	}
	conn, peer, err := wire.Pair("keeper-wire")
	if err != nil {
		return nil, err
	}
	k := &keeperLink{conn: conn, ended: make(chan struct{}), received: make(chan struct{})}
	// A container takes longer to make than the trees to look at: both at once.
	wait := completeMeanwhile(&l)
	err = k.forkBox(ctx, l, container.Setup{Group: group, Labels: b.labels}, peer)
	if err != nil {
		wait()
		conn.Close()
		return nil, err
	}
	return k.start(ctx, l)
}

// completeMeanwhile begins to complete the spec. Who does not ask for it any more waits.
func completeMeanwhile(l *enforce.Launch) (wait func()) {
	var spec enforce.Spec
	var err error
	done := make(chan struct{})
	complete := l.Complete
	go func() {
		defer close(done)
		spec, err = complete()
	}()
	l.Complete = func() (enforce.Spec, error) { <-done; return spec, err }
	return func() { <-done }
}

// look adds what holds a cell in a container alone: device rules, because drivers are kernel code that the system-call filter
// does not see, and labels.
func (b containerBackend) look(o *outside) {
	ok, detail, err := cgroup.DeviceRules(o.pid)
	o.found("kernel/outside-device-rules", enforce.Kernel, ok, detail, err)
	if b.labels != (container.Labels{}) {
		ok, detail, err = b.labels.Held(o.pid)
		o.found("priv/outside-label", enforce.Priv, ok, detail, err)
	}
}

// boxLink is the supervisor's end of the helper.
type boxLink struct {
	control net.Conn
	launch  *wire.Conn
	once    sync.Once
}

// forkBox starts the helper and waits until there is a keeper. It closes peer.
func (k *keeperLink) forkBox(ctx context.Context, l enforce.Launch, setup container.Setup, peer *os.File) error {
	defer peer.Close()
	control, controlPeer, err := boxPair()
	if err != nil {
		return err
	}
	defer controlPeer.Close()
	launch, launchPeer, err := wire.Pair("launch-wire")
	if err != nil {
		return errors.Join(err, control.Close())
	}
	defer launch.Close()
	defer launchPeer.Close()
	b := &boxLink{control: control, launch: launch}
	program, err := openBox()
	if err != nil {
		return errors.Join(&RefusedError{Cause: fmt.Errorf("backend container: %w", err), Remedy: buildBox}, control.Close())
	}
	defer program.Close()
	if err := k.startBox(program, l.Stderr, controlPeer, peer, l.Program, launchPeer); err != nil {
		return errors.Join(err, control.Close())
	}
	k.end = func() error { return b.stop(k.process, k.ended) }
	for _, f := range []*os.File{controlPeer, peer, launchPeer} {
		f.Close() // now: while they are open here, the end of the helper is not seen
	}
	stop := context.AfterFunc(ctx, func() { k.process.Kill() })
	defer stop()
	stuck := time.AfterFunc(keeperLimit, func() { k.process.Kill() })
	defer stuck.Stop()
	spec := enforce.Spec{Identity: l.Identity, Fault: l.Fault}
	setup.HostNet = enforcetest.Off(spec, enforce.NetEgress) || enforcetest.Off(spec, enforce.NetLocal)
	if err := k.handshake(b, setup, wire.Launch{Identity: l.Identity, Fault: l.Fault}); err != nil {
		close(k.received) // nobody listens to the keeper yet
		return errors.Join(err, k.kill())
	}
	return nil
}

// startBox forks the helper on a thread that outlives it, as the keeper of the backend native.
func (k *keeperLink) startBox(program, stderr *os.File, files ...*os.File) error {
	// A number far above those that the child's own descriptors take before it executes.
	fd, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return fmt.Errorf("duplicate the helper's program: %w", err)
	}
	defer unix.Close(fd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := container.Start("/proc/self/fd/"+strconv.Itoa(fd), stderr, files...)
		k.process = p
		started <- err
		if err == nil {
			k.wait("the container ended: ")
		}
	}()
	return <-started
}

// handshake has the container made and the keeper forked in it.
func (k *keeperLink) handshake(b *boxLink, setup container.Setup, launch wire.Launch) error {
	if err := container.Send(b.control, setup); err != nil {
		return fmt.Errorf("coworker-box takes no request: %w", err)
	}
	if err := b.launch.Send(wire.TypeLaunch, launch); err != nil {
		return err
	}
	var answer container.Answer
	if err := container.NewReader(b.control).Receive(&answer); err != nil {
		return fmt.Errorf("coworker-box gave no answer: %w (%s)", err, k.howEnded())
	}
	if answer.Error != "" {
		return fmt.Errorf("coworker-box: %s", answer.Error)
	}
	frame, err := b.launch.Receive()
	if err != nil {
		return fmt.Errorf("the launcher in the container gave no answer: %w (%s)", err, k.howEnded())
	}
	defer frame.Close()
	if frame.Type == wire.TypeFailed {
		failed := &wire.Failed{}
		if err := frame.Decode(failed); err != nil {
			return err
		}
		return failed
	}
	var launched wire.Launched
	if frame.Type != wire.TypeLaunched || len(frame.Files) != 0 {
		return fmt.Errorf("%w: the launcher answered %s with %d descriptors", wire.ErrProtocol, frame.Type, len(frame.Files))
	}
	if err := frame.Decode(&launched); err != nil {
		return err
	}
	if p, ok := readStat(launched.Pid); !ok || p.parent != answer.Pid {
		return fmt.Errorf("%w: process %d is no child of the launcher %d", wire.ErrProtocol, launched.Pid, answer.Pid)
	}
	k.pid, k.launcher = launched.Pid, answer.Pid
	return nil
}

// stop tells the helper to end the container and what to leave; a helper that does not is killed, and the parent-death signals
// end the container.
func (b *boxLink) stop(p *os.Process, ended <-chan struct{}) error {
	var err error
	b.once.Do(func() {
		b.control.SetWriteDeadline(time.Now().Add(time.Second))
		if sendErr := container.Send(b.control, container.Stop{Stop: true}); sendErr != nil && !errors.Is(sendErr, unix.EPIPE) && !errors.Is(sendErr, unix.ECONNRESET) {
			err = sendErr
		}
		err = errors.Join(err, b.control.Close())
		select {
		case <-ended:
		case <-time.After(killedLimit - time.Second):
			err = errors.Join(err, p.Kill())
		}
	})
	return err
}

// boxPair makes the socket pair for the messages of enforce/container.
func boxPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	own, peer := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	conn, err := net.FileConn(own)
	if err = errors.Join(err, own.Close()); err != nil {
		return nil, nil, errors.Join(err, peer.Close())
	}
	return conn, peer, nil
}
