package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/enforce/probe"
	"coworker/runtime/wire"
)

// Main runs the keeper on its wire until the supervisor closes it or the cell ends. program is a
// descriptor of this very binary, from which the cell is started.
func Main(conn *wire.Conn, program int) error {
	defer conn.Close()
	root, err := build(conn)
	if err != nil {
		return err
	}
	ended, err := start(conn, root, program)
	if err != nil {
		return err
	}
	requests := make(chan *wire.Frame)
	closed := make(chan error, 1)
	go receive(conn, requests, closed)
	for {
		select {
		case e := <-ended:
			return conn.Send(wire.TypeCellEnded, wire.CellEnded{Code: e.Code, Signal: e.Signal})
		case err := <-closed:
			// The process ends, and the parent-death signal ends the cell with it.
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case frame := <-requests:
			if err := answer(conn, root, frame); err != nil {
				return err
			}
		}
	}
}

// receive hands frames to the loop; it ends with the connection.
func receive(conn *wire.Conn, requests chan<- *wire.Frame, closed chan<- error) {
	for {
		frame, err := conn.Receive()
		if err != nil {
			closed <- err
			return
		}
		requests <- frame
	}
}

// expect receives the one message that the sequence allows next.
func expect(conn *wire.Conn, t wire.Type, files int, v any) (*wire.Frame, error) {
	frame, err := conn.Receive()
	if err != nil {
		return nil, err
	}
	if frame.Type != t || len(frame.Files) != files {
		frame.Close()
		return nil, fmt.Errorf("%w: want %s with %d descriptors, got %s with %d", wire.ErrProtocol, t, files, frame.Type, len(frame.Files))
	}
	return frame, frame.Decode(v)
}

func build(conn *wire.Conn) (*native.Root, error) {
	var setup wire.KeeperSetup
	if _, err := expect(conn, wire.TypeKeeperSetup, 0, &setup); err != nil {
		return nil, err
	}
	if err := native.SetUp(setup.Spec); err != nil {
		return nil, report(conn, err)
	}
	root, err := native.Build(setup.Spec)
	if err != nil {
		return nil, report(conn, err)
	}
	prepared := wire.KeeperPrepared{Notes: root.Notes}
	sockets, err := egress(setup.Spec, &prepared)
	if err != nil {
		return nil, report(conn, err)
	}
	err = conn.Send(wire.TypeKeeperPrepared, prepared, sockets...)
	for _, f := range sockets { // from here on only the proxy has them
		f.Close()
	}
	return root, err
}

func start(conn *wire.Conn, root *native.Root, program int) (<-chan native.Ended, error) {
	var empty wire.Empty
	frame, err := expect(conn, wire.TypeKeeperStart, 1, &empty)
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	// The cell is started through this descriptor and must not have it: on hosts that forbid programs
	// in memory it is a file of the host. Nor may it have what the supervisor left open by mistake.
	// Linux before 5.11 has no such close_range(2); there the battery finds what is left.
	if unix.CloseRange(uint(program), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		syscall.CloseOnExec(program)
	}
	cell, err := root.StartCell(program, []string{"coworker-cell", "cell"}, os.Stderr, frame.Files[0])
	if err != nil {
		return nil, report(conn, err)
	}
	syscall.Close(program)
	return cell.Ended, conn.Send(wire.TypeKeeperStarted, wire.KeeperStarted{Pid: cell.Pid})
}

// answer does what the supervisor asks for while the session lives.
func answer(conn *wire.Conn, root *native.Root, frame *wire.Frame) error {
	if frame.Type != wire.TypeKeeperAlone {
		return repin(conn, root, frame)
	}
	defer frame.Close()
	var a wire.KeeperAlone
	if len(frame.Files) != 0 {
		return fmt.Errorf("%w: %s with descriptors", wire.ErrProtocol, frame.Type)
	}
	if err := frame.Decode(&a); err != nil {
		return err
	}
	probes := probe.Alone(context.Background(), probe.AloneSetup{Half: enforce.Namespaces, Targets: a.Targets, Literals: a.Literals})
	return conn.Send(wire.TypeKeeperAloneDone, wire.AloneDone{Probes: probes})
}

func repin(conn *wire.Conn, root *native.Root, frame *wire.Frame) error {
	defer frame.Close()
	if frame.Type != wire.TypeRepin || len(frame.Files) != 0 {
		return fmt.Errorf("%w: want %s, got %s", wire.ErrProtocol, wire.TypeRepin, frame.Type)
	}
	var r wire.Repin
	if err := frame.Decode(&r); err != nil {
		return err
	}
	if err := root.Cover(string(r.Tree), string(r.Path), r.Kind); err != nil {
		return conn.Send(wire.TypeFailed, failed(err))
	}
	return conn.Send(wire.TypeRepinned, wire.Empty{})
}

// report tells the supervisor why the set-up ended, then ends it.
func report(conn *wire.Conn, err error) error {
	if sendErr := conn.Send(wire.TypeFailed, failed(err)); sendErr != nil {
		return errors.Join(err, sendErr)
	}
	return err
}

func failed(err error) wire.Failed {
	f := wire.Failed{Step: "set up the root", Reason: err.Error()}
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
