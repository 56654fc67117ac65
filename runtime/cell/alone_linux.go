package cell

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
	"coworker/enforce/landlock"
	"coworker/enforce/native"
	"coworker/enforce/probe"
	"coworker/runtime/wire"
)

// Alone is the whole life of a process that shows what Landlock and the kernel programs keep by themselves: it stays in
// the host's namespaces. It first makes the attempts with nothing around it, so that only what works then counts, puts on
// the cell's Landlock layer, waits until it was moved into the session's control group, and makes them again.
func Alone(conn *wire.Conn) error {
	// It runs as the session's user, who must not be able to answer in its place (ptrace(2)).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	var begin wire.AloneBegin
	if err := receive(conn, wire.TypeAloneBegin, &begin); err != nil {
		return err
	}
	setup := probe.AloneSetup{Half: enforce.Second, Targets: begin.Targets, Literals: begin.Spec.Literals}
	ready := wire.AloneReady{Idle: probe.Control(setup)}
	// Before the group: the layer's own proof connects to a socket, which the programs of the group refuse.
	if err := restrictAlone(begin.Spec); err != nil {
		return errors.Join(err, conn.Send(wire.TypeFailed, failure(fmt.Errorf("landlock: %w", err))))
	}
	if err := conn.Send(wire.TypeAloneReady, ready); err != nil {
		return err
	}
	var empty wire.Empty
	if err := receive(conn, wire.TypeAloneGo, &empty); err != nil {
		return err
	}
	return conn.Send(wire.TypeAloneDone, wire.AloneDone{Probes: probe.Alone(context.Background(), setup)})
}

// restrictAlone puts on the cell's rules as far as they name files that exist outside of it. Its private folders and staged
// trees do not: inside they are other files than those at the same paths here, and a Landlock rule is about a file, not about
// a path (landlock(7)).
func restrictAlone(spec enforce.Spec) error {
	if enforcetest.Off(spec, faultLandlock) {
		return nil
	}
	abi, err := landlock.ABI()
	if errors.Is(err, landlock.ErrNotBuilt) || errors.Is(err, landlock.ErrDisabled) || err == nil && abi < 2 {
		return nil // the attempts show what is left
	}
	if err != nil {
		return err
	}
	visible := native.VisibleOutside(spec)
	_, err = landlock.Restrict(landlock.Rules{
		ReadOnly: optional(visible.ReadOnly), ReadWrite: optional(visible.ReadWrite), List: landlock.Paths("/"),
	})
	return err
}
