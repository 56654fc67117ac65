package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// cellLink is the supervisor's end of the cell's wire. After the first command the other end is
// untrusted: each message is checked against what was asked for, and one that does not fit ends
// the session.
type cellLink struct {
	conn *wire.Conn

	mu      sync.Mutex
	calls   map[uint64]*call
	dials   map[uint64]chan dialResult
	lastID  uint64
	asked   bool          // a request waits for its one answer
	err     error         // why the link ended
	ended   chan struct{} // closed when no more messages will come
	control chan *wire.Frame
}

// call is one command that runs inside.
type call struct {
	started  chan startResult // gets one value
	exited   chan wire.Exited // gets one value after a start that worked
	answered bool             // started has got it; only the dispatcher uses this
}

type startResult struct {
	terminal *os.File // the pty of a command with a terminal
	failed   *wire.ExecFailed
}

type dialResult struct {
	conn   *os.File
	failed *wire.DialFailed
}

func newCellLink(conn *wire.Conn) *cellLink {
	return &cellLink{
		conn: conn, calls: map[uint64]*call{}, dials: map[uint64]chan dialResult{},
		ended: make(chan struct{}), control: make(chan *wire.Frame, 1),
	}
}

// listen dispatches messages until the link ends. One goroutine runs it.
func (l *cellLink) listen() {
	for {
		frame, err := l.conn.Receive()
		if err == nil {
			err = l.dispatch(frame)
		}
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// fail ends the link once and wakes everybody who waits on it.
func (l *cellLink) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		err = errCellGone
	}
	l.err = err
	l.conn.Close()
	close(l.ended)
	select {
	case frame := <-l.control:
		frame.Close()
	default:
	}
}

var errCellGone = errors.New("the cell is gone")

func (l *cellLink) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *cellLink) dispatch(frame *wire.Frame) error {
	switch frame.Type {
	case wire.TypeStarted, wire.TypeExecFailed, wire.TypeExited:
		return l.dispatchCall(frame)
	case wire.TypeDialed, wire.TypeDialFailed:
		return l.dispatchDial(frame)
	}
	if len(frame.Files) != 0 {
		frame.Close()
		return fmt.Errorf("%w: descriptors with %s", wire.ErrProtocol, frame.Type)
	}
	l.mu.Lock()
	asked := l.asked
	l.asked = false
	l.mu.Unlock()
	if !asked {
		return fmt.Errorf("%w: %s was not asked for", wire.ErrProtocol, frame.Type)
	}
	l.control <- frame // has room: there was one request, and this is its one answer
	return nil
}

func (l *cellLink) dispatchCall(frame *wire.Frame) error {
	var head struct{ ID uint64 }
	var started wire.Started
	var failed wire.ExecFailed
	var exited wire.Exited
	var err error
	switch frame.Type {
	case wire.TypeStarted:
		err = frame.Decode(&started)
		head.ID = started.ID
	case wire.TypeExecFailed:
		err = frame.Decode(&failed)
		head.ID = failed.ID
	default:
		err = frame.Decode(&exited)
		head.ID = exited.ID
	}
	l.mu.Lock()
	c := l.calls[head.ID]
	if frame.Type != wire.TypeStarted {
		delete(l.calls, head.ID)
	}
	l.mu.Unlock()
	if err == nil && c == nil {
		err = fmt.Errorf("%w: %s for call %d, which does not run", wire.ErrProtocol, frame.Type, head.ID)
	}
	if err == nil && (len(frame.Files) > 1 || len(frame.Files) == 1 && frame.Type != wire.TypeStarted) {
		err = fmt.Errorf("%w: %d descriptors with %s", wire.ErrProtocol, len(frame.Files), frame.Type)
	}
	if err != nil {
		frame.Close()
		return err
	}
	return c.deliver(frame, &failed, exited)
}

func (c *call) deliver(frame *wire.Frame, failed *wire.ExecFailed, exited wire.Exited) error {
	if c.answered != (frame.Type == wire.TypeExited) {
		frame.Close()
		return fmt.Errorf("%w: %s out of order", wire.ErrProtocol, frame.Type)
	}
	c.answered = true
	if frame.Type == wire.TypeExited {
		c.exited <- exited // has room: the call is forgotten now
		return nil
	}
	result := startResult{}
	if frame.Type == wire.TypeExecFailed {
		result.failed = failed
	} else if len(frame.Files) == 1 {
		result.terminal = frame.Files[0]
	}
	c.started <- result // has room: answered lets one pass
	return nil
}

func (l *cellLink) dispatchDial(frame *wire.Frame) error {
	var result dialResult
	var id uint64
	var err error
	if frame.Type == wire.TypeDialed {
		var d wire.Dialed
		err = frame.Decode(&d)
		id = d.ID
		if err == nil && len(frame.Files) != 1 {
			err = fmt.Errorf("%w: %d descriptors with %s", wire.ErrProtocol, len(frame.Files), frame.Type)
		}
	} else {
		result.failed = &wire.DialFailed{}
		err = frame.Decode(result.failed)
		id = result.failed.ID
	}
	l.mu.Lock()
	waiter := l.dials[id]
	delete(l.dials, id)
	l.mu.Unlock()
	if err == nil && waiter == nil {
		err = fmt.Errorf("%w: %s for dial %d, which nobody asked for", wire.ErrProtocol, frame.Type, id)
	}
	if err != nil {
		frame.Close()
		return err
	}
	if result.failed == nil {
		result.conn = frame.Files[0]
	}
	waiter <- result
	return nil
}

// newCall registers a command before it is sent.
func (l *cellLink) newCall() (uint64, *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	c := &call{started: make(chan startResult, 1), exited: make(chan wire.Exited, 1)}
	l.calls[l.lastID] = c
	return l.lastID, c
}

func (l *cellLink) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
	delete(l.dials, id)
}

// sendLimit bounds how long the other end may leave its wire unread: a process inside can stop the
// cell's dispatcher (see runtime/cell), and a full socket would then block the supervisor.
const sendLimit = 30 * time.Second

// send sends one message; a cell that does not read it in time loses its session.
func (l *cellLink) send(t wire.Type, v any, files ...*os.File) error {
	stuck := time.AfterFunc(sendLimit, func() {
		l.fail(fmt.Errorf("the cell did not read %s within %v", t, sendLimit))
	})
	defer stuck.Stop()
	err := l.conn.Send(t, v, files...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		l.fail(errCellGone) // unless a better reason is known
		return l.reason()
	}
	return err
}

// request sends a message that the cell answers with one message, and waits for that. A cell that
// does not answer while ctx lasts loses its session: the answer could come at any time and be taken
// for another one. Two requests at once are a mistake of the caller.
func (l *cellLink) request(ctx context.Context, t wire.Type, v any, want wire.Type, answer any) error {
	l.mu.Lock()
	l.asked = true
	l.mu.Unlock()
	if err := l.send(t, v); err != nil {
		return err
	}
	select {
	case frame := <-l.control:
		return decodeAnswer(frame, want, answer)
	case <-l.ended:
		return l.reason()
	case <-ctx.Done():
		err := fmt.Errorf("the cell gave no answer to %s: %w", t, ctx.Err())
		l.fail(err)
		return err
	}
}

func decodeAnswer(frame *wire.Frame, want wire.Type, v any) error {
	defer frame.Close()
	if frame.Type == wire.TypeFailed {
		failed := &wire.Failed{}
		if err := frame.Decode(failed); err != nil {
			return err
		}
		return failed
	}
	if frame.Type != want {
		return fmt.Errorf("%w: want %s, got %s", wire.ErrProtocol, want, frame.Type)
	}
	return frame.Decode(v)
}
