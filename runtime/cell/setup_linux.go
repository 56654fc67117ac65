package cell

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
	"coworker/enforce/native"
	"coworker/enforce/probe"
	"coworker/enforce/seccomp"
	"coworker/runtime/wire"
)

// Main is the whole life of a cell: raise the walls, attack them, tell the supervisor what
// happened, and serve only if it commits. It returns when the wire ends.
func Main(conn *wire.Conn) error {
	var begin wire.Begin
	if err := receive(conn, wire.TypeBegin, &begin); err != nil {
		return err
	}
	proved, err := raise(begin)
	if err != nil {
		return errors.Join(err, conn.Send(wire.TypeFailed, failure(err)))
	}
	if err := conn.Send(wire.TypeProved, proved); err != nil {
		return err
	}
	var commit wire.Empty
	if err := receive(conn, wire.TypeCommit, &commit); err != nil {
		return err
	}
	if err := conn.Send(wire.TypeReady, wire.Empty{}); err != nil {
		return err
	}
	own := begin.Backend.Namespaces() && !enforcetest.Off(begin.Spec, enforce.Proc)
	return Serve(conn, Options{OwnPIDNamespace: own})
}

func receive(conn *wire.Conn, want wire.Type, v any) error {
	frame, err := conn.Receive()
	if err != nil {
		return err
	}
	defer frame.Close()
	if frame.Type != want || len(frame.Files) != 0 {
		return fmt.Errorf("%w: want %s, got %s", wire.ErrProtocol, want, frame.Type)
	}
	return frame.Decode(v)
}

// raise puts up the walls in the one order that works: mounts need capabilities, so they come
// before those are dropped; Landlock refuses mounts, so it comes after; seccomp refuses much of
// what the others need, so it comes last; and the probes attack all of it.
func raise(b wire.Begin) (*wire.Proved, error) {
	p := &wire.Proved{Micros: map[string]int{}}
	last := time.Now()
	lap := func(name string) {
		now := time.Now()
		p.Micros[name] = int(now.Sub(last).Microseconds())
		last = now
	}
	if err := enter(b); err != nil {
		return nil, err
	}
	lap("enter")
	var err error
	if p.Limits, err = setLimits(b); err != nil {
		return nil, err
	}
	if err := restrict(b, p); err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	lap("landlock")
	if !enforcetest.Off(b.Spec, enforce.Kernel) {
		if err := seccomp.Load(variant(b, p.LandlockABI)); err != nil {
			return nil, err
		}
	}
	lap("seccomp")
	p.Probes = probe.Run(context.Background(), probe.Setup{
		Backend: b.Backend, Spec: b.Spec, Targets: b.Targets, LandlockABI: p.LandlockABI, Limits: p.Limits,
	})
	lap("probes")
	return p, nil
}

func enter(b wire.Begin) error {
	if b.Backend.Namespaces() {
		return native.Enter(b.Spec)
	}
	return enterBare()
}

func variant(b wire.Begin, abi int) seccomp.Variant {
	switch {
	case b.Backend == enforce.Bare && abi < tcpABI:
		return seccomp.BareOffline // Landlock cannot tell TCP ports apart: no internet sockets at all
	case b.Backend == enforce.Bare:
		return seccomp.Bare // --debug is never offered there
	case b.Spec.Debug:
		return seccomp.Debug
	}
	return seccomp.Native
}

func failure(err error) wire.Failed {
	f := wire.Failed{Step: "raise the walls", Reason: err.Error()}
	var step *native.StepError
	if errors.As(err, &step) {
		f.Step, f.Value, f.Reason = step.Step, []byte(step.Value), step.Err.Error()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}
