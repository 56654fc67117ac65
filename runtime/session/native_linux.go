package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/netproxy/control"
	"coworker/runtime/wire"
)

// nativeBackend builds cells from namespaces, through the keeper.
type nativeBackend struct{}

var _ enforce.Backend = nativeBackend{}

func (nativeBackend) Name() enforce.BackendName { return enforce.Native }

func (nativeBackend) Available(ctx context.Context) enforce.Availability {
	return native.Available(ctx)
}

// keeperLink is the supervisor's end of the keeper: one request at a time.
type keeperLink struct {
	conn     *wire.Conn
	process  *os.Process   // the child to wait for: the keeper, or the helper that holds its container
	pid      int           // of the keeper
	launcher int           // its parent in a container, which is in the session's group too; else 0
	end      func() error  // ends process, which need not be gone after that
	ended    chan struct{} // closed when process is gone

	mu       sync.Mutex    // held from a request to its answer
	received chan struct{} // closed when no more answers will come

	stateMu sync.Mutex
	waiting chan<- *wire.Frame // nil while nobody waits for an answer
	how     string
}

// keeperLimit bounds how long the keeper may take to answer. Attaching some ten thousand covers takes
// seconds; a file system that hangs takes forever.
const keeperLimit = time.Minute

// killedLimit bounds how long a process may take to end after SIGKILL: one that hangs in the kernel
// must not hang the supervisor.
const killedLimit = 5 * time.Second

// Start forks the keeper on a thread of its own and walks through the keeper's sequence.
func (nativeBackend) Start(ctx context.Context, l enforce.Launch) (*enforce.Cell, error) {
	conn, peer, err := wire.Pair("keeper-wire")
	if err != nil {
		return nil, err
	}
	k := &keeperLink{conn: conn, ended: make(chan struct{}), received: make(chan struct{})}
	err = k.fork(l, peer)
	peer.Close()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return k.start(ctx, l)
}

// start walks through the keeper's sequence. On error the keeper is gone.
func (k *keeperLink) start(ctx context.Context, l enforce.Launch) (*enforce.Cell, error) {
	cell, err := k.launch(ctx, l)
	if err != nil {
		return nil, errors.Join(err, k.kill())
	}
	return cell, nil
}

// fork starts the keeper and waits for it on the thread that forked, so that the thread outlives
// it (parent-death signal).
func (k *keeperLink) fork(l enforce.Launch, peer *os.File) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// The number that the program has in the child, after the wire: the child's own descriptors
		// are in place when it executes, and one of them may have taken the number it has here.
		const program = "/proc/self/fd/4"
		p, err := native.Start(enforce.Spec{Identity: l.Identity, Fault: l.Fault}, program, []string{"coworker-cell", "keeper"}, l.Stderr, peer, l.Program)
		if err == nil {
			k.process, k.pid, k.end = p, p.Pid, p.Kill
		}
		started <- err
		if err == nil {
			k.wait("the keeper ended: ")
		}
	}()
	return <-started
}

// wait waits for the process and says how it ended.
func (k *keeperLink) wait(what string) {
	defer close(k.ended)
	state, err := k.process.Wait()
	// Its last message tells more than its exit status: it may still be on its way.
	select {
	case <-k.received:
	case <-time.After(time.Second):
	}
	if err == nil {
		k.setHow(what + state.String())
	}
}

func (k *keeperLink) setHow(how string) {
	k.stateMu.Lock()
	defer k.stateMu.Unlock()
	if k.how == "" {
		k.how = how
	}
}

func (k *keeperLink) launch(ctx context.Context, l enforce.Launch) (*enforce.Cell, error) {
	stop := context.AfterFunc(ctx, func() { k.conn.Close() })
	defer stop()
	go k.receive()
	// Moving a process between control groups waits for an RCU grace period. So the keeper is moved
	// while it builds the root, the cell is born in the group, and the keeper moves out again while
	// the cell attacks its walls.
	joined := make(chan error, 1)
	go func() { joined <- l.Join(k.pid) }()
	spec, err := l.Complete()
	if err != nil {
		<-joined
		return nil, err
	}
	var prepared wire.KeeperPrepared
	sockets, askErr := k.askFiles(wire.TypeKeeperSetup, wire.KeeperSetup{Spec: spec}, wire.TypeKeeperPrepared, &prepared)
	joinErr := <-joined
	if askErr != nil {
		return nil, askErr // a keeper that is gone cannot be moved either
	}
	egress, err := egressOf(spec, prepared, sockets)
	if err = errors.Join(joinErr, err); err != nil {
		egress.Close()
		return nil, err
	}
	if egress != nil {
		l.Made(egress)
	}
	cell, err := k.startCell(l, prepared.Notes)
	if err != nil {
		return nil, err
	}
	cell.Egress = egress
	return cell, nil
}

// egressOf checks that the keeper made what the Spec asks for.
func egressOf(spec enforce.Spec, prepared wire.KeeperPrepared, sockets []*os.File) (*enforce.Egress, error) {
	e := &enforce.Egress{Sockets: sockets}
	want := 0
	if p := prepared.Egress; p != nil {
		e.IPv6, e.Transparent = p.IPv6, p.Transparent
		want = control.SocketsIPv4
		if p.IPv6 {
			want = control.Sockets
		}
	}
	if len(sockets) != want || spec.Net.Egress() != (prepared.Egress != nil) {
		return e, fmt.Errorf("%w: the keeper sent %d sockets for the network mode %q", wire.ErrProtocol, len(sockets), spec.Net)
	}
	if prepared.Egress == nil {
		return nil, nil
	}
	return e, nil
}

// startCell has the keeper fork the cell.
func (k *keeperLink) startCell(l enforce.Launch, notes []string) (*enforce.Cell, error) {
	// Opened after the pivot: the kernel notes the root of the process at open time, and shows
	// mount points relative to it.
	// Not with os.Open: the Go runtime would add the file to its own epoll set, and each look of
	// epoll at it consumes the one event that a change of the table gives (mounts_poll in the
	// kernel's fs/proc_namespace.c). A lost pin would go unnoticed.
	name := fmt.Sprintf("/proc/%d/mountinfo", k.pid)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cell's mount table: %w (%s)", err, k.howEnded())
	}
	mountInfo := os.NewFile(uintptr(fd), name)
	var startedMsg wire.KeeperStarted
	if err := k.ask(wire.TypeKeeperStart, wire.Empty{}, wire.TypeKeeperStarted, &startedMsg, l.CellWire); err != nil {
		mountInfo.Close()
		return nil, err
	}
	if p, ok := readStat(startedMsg.Pid); !ok || p.parent != k.pid {
		mountInfo.Close()
		return nil, fmt.Errorf("%w: process %d is no child of the keeper", wire.ErrProtocol, startedMsg.Pid)
	}
	left := make(chan error, 1)
	go func() { left <- k.leave(l) }()
	return &enforce.Cell{
		Settled:   sync.OnceValue(func() error { return <-left }),
		Pid:       startedMsg.Pid,
		Notes:     notes,
		MountInfo: mountInfo,
		Cover:     k.cover,
		Alone:     k.alone,
		Kill:      k.kill,
		Ended:     k.ended,
		How:       k.howEnded,
	}, nil
}

// leave moves coworker's own processes out of the session's group.
func (k *keeperLink) leave(l enforce.Launch) error {
	err := l.Leave(k.pid)
	if k.launcher != 0 {
		err = errors.Join(err, l.Leave(k.launcher))
	}
	return err
}

// receive hands the keeper's answers to whoever asked. It ends with the connection, or with a
// message that nobody asked for.
func (k *keeperLink) receive() {
	defer close(k.received)
	for {
		frame, err := k.conn.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				k.setHow("keeper wire: " + err.Error())
			}
			return
		}
		if frame.Type == wire.TypeCellEnded {
			var e wire.CellEnded
			if frame.Decode(&e) == nil {
				k.setHow(describeEnd(e))
			}
			continue
		}
		k.stateMu.Lock()
		waiting := k.waiting
		k.waiting = nil
		k.stateMu.Unlock()
		if waiting == nil {
			frame.Close()
			k.breakOff(fmt.Errorf("%w: %s was not asked for", wire.ErrProtocol, frame.Type))
			return
		}
		waiting <- frame
	}
}

// breakOff ends a keeper that broke the rules or does not answer.
func (k *keeperLink) breakOff(why error) {
	k.setHow("keeper wire: " + why.Error())
	k.conn.Close()
	k.end() // an error means that it has ended already
}

func describeEnd(e wire.CellEnded) string {
	if e.Signal != 0 {
		return fmt.Sprintf("the cell was ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("the cell ended with status %d", e.Code)
}

// ask sends one request and waits for its answer.
func (k *keeperLink) ask(request wire.Type, body any, want wire.Type, v any, files ...*os.File) error {
	frame, err := k.exchange(request, body, want, files...)
	if err != nil {
		return err
	}
	defer frame.Close()
	if len(frame.Files) != 0 {
		return fmt.Errorf("%w: keeper answered %s with %d descriptors", wire.ErrProtocol, frame.Type, len(frame.Files))
	}
	return frame.Decode(v)
}

// askFiles is ask for an answer with descriptors, which the caller owns then.
func (k *keeperLink) askFiles(request wire.Type, body any, want wire.Type, v any) ([]*os.File, error) {
	frame, err := k.exchange(request, body, want)
	if err != nil {
		return nil, err
	}
	if err := frame.Decode(v); err != nil {
		frame.Close()
		return nil, err
	}
	return frame.Files, nil
}

// exchange sends one request and gives the answer, if it is the wanted one. The caller closes it.
func (k *keeperLink) exchange(request wire.Type, body any, want wire.Type, files ...*os.File) (*wire.Frame, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stuck := time.AfterFunc(keeperLimit, func() {
		k.breakOff(fmt.Errorf("no answer to %s within %v", request, keeperLimit))
	})
	defer stuck.Stop()
	answer := make(chan *wire.Frame, 1)
	k.stateMu.Lock()
	k.waiting = answer
	k.stateMu.Unlock()
	if err := k.conn.Send(request, body, files...); err != nil {
		return nil, fmt.Errorf("keeper takes no %s: %w (%s)", request, err, k.howEnded())
	}
	var frame *wire.Frame
	select {
	case frame = <-answer:
	case <-k.received:
		select {
		case frame = <-answer: // it came just before the end
		default:
			return nil, fmt.Errorf("keeper gave no answer to %s: %s", request, k.howEnded())
		}
	}
	if frame.Type == want {
		return frame, nil
	}
	defer frame.Close()
	if frame.Type == wire.TypeFailed {
		failed := &wire.Failed{}
		if err := frame.Decode(failed); err != nil {
			return nil, err
		}
		return nil, failed
	}
	return nil, fmt.Errorf("%w: keeper answered %s to %s", wire.ErrProtocol, frame.Type, request)
}

func (k *keeperLink) alone(t enforce.AloneTargets, literals []string) ([]enforce.Probe, error) {
	var done wire.AloneDone
	err := k.ask(wire.TypeKeeperAlone, wire.KeeperAlone{Targets: t, Literals: literals}, wire.TypeKeeperAloneDone, &done)
	return done.Probes, err
}

func (k *keeperLink) cover(tree, rel string, kind enforce.CoverKind) error {
	var done wire.Empty
	return k.ask(wire.TypeRepin, wire.Repin{Tree: []byte(tree), Path: []byte(rel), Kind: kind}, wire.TypeRepinned, &done)
}

// kill ends the keeper; the parent-death signal ends the cell, and the kernel ends everything in
// its pid namespace with it. It waits for the keeper; the caller checks that the cell is gone.
func (k *keeperLink) kill() error {
	k.conn.Close()
	<-k.received
	err := k.end()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-k.ended:
		return err
	case <-time.After(killedLimit):
		return errors.Join(err, fmt.Errorf("process %d (keeper %d) was killed and is still there after %v", k.process.Pid, k.pid, killedLimit))
	}
}

func (k *keeperLink) howEnded() string {
	k.stateMu.Lock()
	defer k.stateMu.Unlock()
	if k.how == "" {
		return "no reason is known"
	}
	return strings.TrimSpace(k.how)
}
