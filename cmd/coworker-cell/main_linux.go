package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"coworker/runtime/cell"
	"coworker/runtime/cell/keeper"
	"coworker/runtime/wire"
)

// The descriptors that the supervisor and the keeper leave to this program.
const (
	wireDescriptor    = 3
	programDescriptor = 4
)

// The main goroutine stays on the main thread: the parent-death signal and the probes about it
// belong to a thread.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "coworker-cell:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("this program is started by coworker, not by hand")
	}
	if err := unblockSignals(args); err != nil {
		return err
	}
	descriptor := uintptr(wireDescriptor)
	if args[1] == "launch" {
		descriptor = keeper.LaunchDescriptor
	}
	conn, err := wire.Inherited(descriptor, "wire")
	if err != nil {
		return fmt.Errorf("this program is started by coworker, not by hand: %w", err)
	}
	switch args[1] {
	case "launch":
		return keeper.Launch(conn)
	case "keeper":
		return keeper.Main(conn, programDescriptor)
	case "cell":
		return cell.Main(conn)
	case "alone":
		return cell.Alone(conn)
	}
	return fmt.Errorf("mode %q: want launch, keeper, cell or alone", args[1])
}

// unblockSignals starts this program again if whoever started coworker had blocked a signal, as
// some profilers and service managers do: commands would inherit that. The descriptors are not
// marked close-on-exec yet.
func unblockSignals(args []string) error {
	blocked, err := cell.BlockedSignal()
	if err != nil || blocked == "" {
		return err
	}
	if err := cell.ClearSignalMask(); err != nil {
		return err
	}
	return fmt.Errorf("start again without blocked signals: %w", syscall.Exec("/proc/self/exe", args, nil))
}
