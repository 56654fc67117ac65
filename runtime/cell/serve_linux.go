package cell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// DefaultMaxCommands is how many commands may run at once unless Options says otherwise.
const DefaultMaxCommands = 256

// killLimit bounds how long KillAll waits for the last process. A process that a kill does not
// end in this time hangs in the kernel; the session ends and the namespace with it.
const killLimit = 2 * time.Second

// Options of Serve.
type Options struct {
	// OwnPIDNamespace says that this process is PID 1 of a pid namespace made for the session,
	// so that kill(-1) reaches the session and nothing else. Without it, as in the bare backend,
	// Serve becomes a child subreaper and finds the session's processes by descent.
	OwnPIDNamespace bool

	// MaxCommands is how many commands may run at once; 0 means DefaultMaxCommands.
	MaxCommands int
}

// server is the state of one Serve.
type server struct {
	conn  *wire.Conn
	table *table
	dials dials
	ownNS bool

	// stoppedBefore holds the processes, by id and start time, that were stopped when Stop came;
	// nil outside Stop and Continue. Only the dispatcher uses it.
	stoppedBefore map[int]string
}

// Serve answers the supervisor after Ready and returns when the wire ends: nil if the supervisor
// closed it, otherwise the reason. It owns conn and closes it. By then every process of the
// session has been killed; the caller must exit. Serve takes the process over: it catches all
// signals and keeps catching them, and it is the only one that may wait for children.
func Serve(conn *wire.Conn, o Options) error {
	defer conn.Close()
	if o.MaxCommands <= 0 {
		o.MaxCommands = DefaultMaxCommands
	}
	// One thread forks everything and sends every signal. Below Landlock ABI 8 each thread has
	// restricted itself, which makes sibling domains: a command forked by one thread could not be
	// signalled by another, nor by a command forked there (scope LANDLOCK_SCOPE_SIGNAL). And the
	// parent-death signal comes when the forking thread ends, not the process
	// (PR_SET_PDEATHSIG(2const)); this thread lives as long as Serve.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := prepareProcess(o.OwnPIDNamespace); err != nil {
		return err
	}
	s := &server{conn: conn, table: newTable(o.MaxCommands), ownNS: o.OwnPIDNamespace}
	s.dials.init()

	var reaper, writer sync.WaitGroup
	reaper.Go(s.table.reap)
	writer.Go(s.writeExits)

	err := endOfWire(s.dispatch())
	conn.Close() // lets the writer and the dials go
	s.dials.close()
	if _, killErr := s.killAll(); killErr != nil {
		// The reaper cannot be waited for; it ends with the process.
		return errors.Join(err, killErr)
	}
	s.table.close() // not before: killAll needs the reaper
	reaper.Wait()
	close(s.table.exits)
	writer.Wait()
	return err
}

// prepareProcess makes sure that commands inherit nothing from this process that they should not.
func prepareProcess(ownNS bool) error {
	if ownNS && os.Getpid() != 1 {
		return fmt.Errorf("cell: pid %d is not the first of a pid namespace, kill(-1) would reach other sessions", os.Getpid())
	}
	if !ownNS {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("cell: become a child subreaper: %w", err)
		}
	}
	// Commands share the user id: a dumpable cell would hand them its wire (pidfd_getfd(2)) and
	// its memory. The set-up has done this; a cell without it must not serve.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cell: become non-dumpable: %w", err)
	}
	if err := requireClearMask(); err != nil {
		return err
	}
	if err := closeOnExecFrom(3); err != nil {
		return err
	}
	catchSignals()
	return nil
}

// catchSignals gives every signal a handler, see the package documentation. Nobody reads the
// channel: os/signal drops what does not fit. SIGURG stays with the Go scheduler, which uses it to
// preempt, and SIGCHLD with the runtime's own handler, which does nothing.
func catchSignals() {
	var all []os.Signal
	for n := syscall.Signal(1); n <= maxSignal; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG, unix.SIGCHLD:
		default:
			all = append(all, n)
		}
	}
	signal.Notify(make(chan os.Signal, 1), all...)
}

// endOfWire maps the ways in which a supervisor goes away to nil.
func endOfWire(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// dispatch acts on frames until one breaks the rules or the wire ends.
func (s *server) dispatch() error {
	for {
		frame, err := s.conn.Receive()
		if err != nil {
			return err
		}
		err = s.handle(frame)
		frame.Close()
		if err != nil {
			return err
		}
	}
}

// handle acts on one frame; an error ends the session. The caller closes the frame.
func (s *server) handle(f *wire.Frame) error {
	if f.Type != wire.TypeExec && len(f.Files) != 0 {
		return fmt.Errorf("%w: %s with %d descriptors", wire.ErrProtocol, f.Type, len(f.Files))
	}
	switch f.Type {
	case wire.TypeExec:
		return s.exec(f)
	case wire.TypeSignal:
		return s.signal(f)
	case wire.TypeResize:
		return s.resize(f)
	case wire.TypeDial:
		return s.dial(f)
	case wire.TypeStop, wire.TypeContinue, wire.TypeKillAll:
		if err := f.Decode(&wire.Empty{}); err != nil {
			return err
		}
		return s.everyProcess(f.Type)
	default:
		return fmt.Errorf("%w: %s is not for a serving cell", wire.ErrProtocol, f.Type)
	}
}

func (s *server) everyProcess(t wire.Type) error {
	switch t {
	case wire.TypeStop:
		n, err := s.stopAll()
		if err != nil {
			return err
		}
		return s.conn.Send(wire.TypeStopped, wire.Stopped{Processes: n})
	case wire.TypeContinue:
		if err := s.continueAll(); err != nil {
			return err
		}
		return s.conn.Send(wire.TypeContinued, wire.Empty{})
	default:
		n, err := s.killAll()
		if err != nil {
			return err
		}
		// Killed is the last word: every Exited is on the wire before it.
		s.table.waitSent()
		return s.conn.Send(wire.TypeKilled, wire.Killed{Processes: n})
	}
}

// writeExits sends Exited until the queue closes. After the wire has failed it goes on taking
// entries, so that no one waits for them.
func (s *server) writeExits() {
	for e := range s.table.exits {
		s.table.forget(e.ID)
		if err := s.conn.Send(wire.TypeExited, e); err != nil {
			s.conn.Close() // ends dispatch
		}
		s.table.sent()
	}
}
