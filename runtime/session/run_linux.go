package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/runtime/wire"
)

// Command is one program to run inside.
type Command struct {
	Argv []string
	Env  []string // nil: the environment of the Spec
	Dir  string   // "": the workspace

	Stdin          *os.File  // nil: empty. Copied, never handed in: what is inside gets no descriptor of the host's
	Stdout, Stderr io.Writer // nil: discarded
	Terminal       *Terminal // set: the command gets a terminal of its own instead of the three

	Timeout time.Duration // 0: none
	Grace   time.Duration // between SIGTERM and SIGKILL after a time-out or cancellation; 0: 2 s
}

// Result tells how a command ended.
type Result struct {
	Code     int // exit status; 128+n if ended by signal n, as shells say it; 126, 127 if it did not start
	Signal   int
	TimedOut bool
	Started  bool
	Reason   string // why it did not start
	User     time.Duration
	System   time.Duration
	MaxRSS   int64 // KiB
	Elapsed  time.Duration
}

const (
	defaultGrace = 2 * time.Second
	startLimit   = 30 * time.Second
)

// Run runs one command and returns when it has ended, everything it wrote was handed on, and the
// trees have been swept. Cancelling ctx ends the command, not the session.
func (s *Session) Run(ctx context.Context, c Command) (Result, error) {
	if state := s.current(); state != Ready {
		return Result{}, fmt.Errorf("run a command in a session that is %s", state)
	}
	begun := s.options.Now()
	id, running := s.link.newCall()
	streams, err := s.send(id, c)
	if err != nil {
		s.link.forget(id)
		if s.link.reason() != nil {
			err = s.lost()
		}
		return Result{}, err
	}
	result, err := s.await(ctx, id, running, streams, c)
	result.Elapsed = s.options.Now().Sub(begun)
	streams.finish()
	if err != nil {
		return result, err
	}
	return result, errors.Join(s.guard.afterCall(context.WithoutCancel(ctx)), s.disk.afterCall())
}

// send hands the command to the cell, with one end of each of its pipes.
func (s *Session) send(id uint64, c Command) (*streams, error) {
	env, dir := c.Env, c.Dir
	if env == nil {
		env = s.options.Spec.Env
	}
	if dir == "" {
		dir = s.options.Spec.Workspace
	}
	msg := wire.Exec{ID: id, Argv: byteSlices(c.Argv), Env: byteSlices(env), Dir: []byte(dir)}
	if c.Terminal != nil {
		msg.TTY = true
		msg.Rows, msg.Cols = c.Terminal.size()
		st := newTerminalStreams(c.Terminal)
		st.hold = &s.input
		return st, s.link.send(wire.TypeExec, msg)
	}
	st, inside, err := newPipeStreams(c, s.options.Spec.Identity)
	if err != nil {
		return nil, err
	}
	st.hold = &s.input
	err = s.link.send(wire.TypeExec, msg, inside...)
	for _, f := range inside {
		f.Close()
	}
	if err != nil {
		st.finish()
		return nil, err
	}
	st.start()
	return st, nil
}

func byteSlices(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, v := range list {
		out[i] = []byte(v)
	}
	return out
}

// await follows the command to its end.
func (s *Session) await(ctx context.Context, id uint64, running *call, st *streams, c Command) (Result, error) {
	select {
	case started := <-running.started:
		if started.failed != nil {
			return notStarted(started.failed), nil
		}
		if c.Terminal != nil {
			if started.terminal == nil {
				err := fmt.Errorf("%w: no terminal with %s", wire.ErrProtocol, wire.TypeStarted)
				s.fail(err)
				return Result{}, err
			}
			if err := st.attach(started.terminal); err != nil {
				s.fail(err) // the command runs, and nobody could talk to it
				return Result{}, err
			}
			defer s.terminals.enter(c.Terminal)()
		}
	case <-s.link.ended:
		return Result{}, s.lost()
	case <-time.After(startLimit):
		// A process inside can stop a new command between its fork and its exec, and with it the
		// cell's dispatcher, which waits for the exec.
		err := fmt.Errorf("the cell did not start the command within %v", startLimit)
		s.fail(err)
		return Result{}, err
	}
	exited, timedOut, err := s.waitExit(ctx, id, running, c)
	if err != nil {
		return Result{Started: true, TimedOut: timedOut}, err
	}
	return ended(exited, timedOut), nil
}

func notStarted(f *wire.ExecFailed) Result {
	code := 126
	if syscall.Errno(f.Errno) == syscall.ENOENT || syscall.Errno(f.Errno) == syscall.ENOTDIR {
		code = 127
	}
	return Result{Code: code, Reason: f.Reason}
}

func ended(e wire.Exited, timedOut bool) Result {
	r := Result{
		Code: e.Code, Signal: e.Signal, Started: true, TimedOut: timedOut,
		User: time.Duration(e.User) * time.Microsecond, System: time.Duration(e.System) * time.Microsecond, MaxRSS: e.MaxRSS,
	}
	if e.Signal != 0 {
		r.Code = 128 + e.Signal
	}
	return r
}

// waitExit waits for the end, and brings it about when the time is up or the caller gives up:
// SIGTERM first, SIGKILL after the grace.
func (s *Session) waitExit(ctx context.Context, id uint64, running *call, c Command) (wire.Exited, bool, error) {
	if c.Grace <= 0 {
		c.Grace = defaultGrace
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Duration(s.options.Spec.Limits.Time) * time.Second
	}
	var limit <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		limit = t.C
	}
	done := ctx.Done()
	timedOut, ending := false, false
	signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}
	for {
		select {
		case e := <-running.exited:
			return e, timedOut, nil
		case <-s.link.ended:
			return wire.Exited{}, timedOut, s.lost()
		case <-limit:
			timedOut = timedOut || !ending // the second time it is the grace after SIGTERM
		case <-done:
			done = nil
			if ending {
				continue
			}
		}
		ending = true
		if len(signals) == 0 {
			err := fmt.Errorf("command %d outlived SIGKILL by %v", id, c.Grace)
			s.fail(err)
			return wire.Exited{}, timedOut, err
		}
		if err := s.Signal(id, signals[0]); err != nil {
			return wire.Exited{}, timedOut, err
		}
		signals = signals[1:]
		t := time.NewTimer(c.Grace)
		defer t.Stop()
		limit = t.C
	}
}

// timeLimit tells how long one command may take, if that is bounded.
func (s *Session) timeLimit() []enforce.Limit {
	seconds := s.options.Spec.Limits.Time
	if seconds <= 0 {
		return nil
	}
	return []enforce.Limit{{Name: "time", Value: seconds, Active: true, Mechanism: enforce.Supervisor}}
}

// Signal sends a signal to the process group of a running command.
func (s *Session) Signal(id uint64, sig syscall.Signal) error {
	return s.link.send(wire.TypeSignal, wire.Signal{ID: id, Signal: int(sig)})
}

// LostError says that the cell ended while a command ran.
type LostError struct{ Reason string }

func (e *LostError) Error() string { return "the session ended while the command ran: " + e.Reason }

func (s *Session) lost() error {
	if err := s.failed(); err != nil {
		return err
	}
	reason := s.link.reason()
	if !errors.Is(reason, errCellGone) {
		return reason
	}
	select {
	case <-s.cell.Ended:
		how := s.cell.How()
		if text := s.crash.text(); text != "" {
			how += " (" + text + ")"
		}
		return &LostError{Reason: how}
	case <-time.After(time.Second):
		return &LostError{Reason: reason.Error()}
	}
}
