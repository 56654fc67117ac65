package keeper

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/runtime/wire"
)

// The keeper's descriptors in a container's launcher, which hands them on under the same numbers, and the launcher's own.
const (
	launchKeeperWire = 3
	launchProgram    = 4
	LaunchDescriptor = 5
)

// Launch forks the keeper inside a container, where nobody else can: libcontainer makes no user namespace without uid 0 in it.
// It waits for the keeper, because the keeper's parent-death signal follows this thread, which must be the main one.
func Launch(conn *wire.Conn) error {
	defer conn.Close()
	// Set again here: libcontainer clones the container's process twice, and a clone has no parent-death signal.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return report(conn, &native.StepError{Step: "prctl PR_SET_PDEATHSIG", Err: err})
	}
	var l wire.Launch
	if _, err := expect(conn, wire.TypeLaunch, 0, &l); err != nil {
		return err // the helper died before the signal was set, and the supervisor gave up
	}
	unix.CloseOnExec(LaunchDescriptor)
	p, err := launch(l)
	if err != nil {
		return report(conn, err)
	}
	if err := conn.Send(wire.TypeLaunched, wire.Launched{Pid: p.Pid}); err != nil {
		return err
	}
	if _, err := p.Wait(); err != nil {
		return fmt.Errorf("wait for the keeper: %w", err)
	}
	return nil
}

func launch(l wire.Launch) (*os.Process, error) {
	keeperWire := os.NewFile(launchKeeperWire, "keeper-wire")
	program := os.NewFile(launchProgram, "program")
	defer keeperWire.Close() // while it is open here, nobody sees the keeper's end of it close
	defer program.Close()
	spec := enforce.Spec{Identity: l.Identity, Fault: l.Fault}
	p, err := native.Start(spec, fmt.Sprintf("/proc/self/fd/%d", launchProgram), []string{"coworker-cell", "keeper"}, os.Stderr, keeperWire, program)
	if err != nil {
		return nil, err
	}
	return p, native.DropPrivileges()
}
