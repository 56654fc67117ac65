//go:build cgo

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"coworker/enforce/container"
)

// The main goroutine stays on the main thread: what it forks has this thread for a parent, and asks for its death signal.
func init() { runtime.LockOSThread() }

func main() {
	enterContainer(os.Args)
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "coworker-box:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	control := os.NewFile(container.ControlDescriptor, "control")
	if len(args) != 1 {
		return errors.New("this program is started by coworker, not by hand")
	}
	var setup container.Setup
	messages := container.NewReader(control)
	if err := messages.Receive(&setup); err != nil {
		return fmt.Errorf("this program is started by coworker, not by hand: %w", err)
	}
	box, err := launch(setup)
	if err != nil {
		return errors.Join(err, container.Send(control, container.Answer{Error: err.Error()}))
	}
	if err := container.Send(control, container.Answer{Pid: box.pid()}); err != nil {
		box.kill() // the supervisor is gone: what follows cleans up
	}
	stopped := make(chan bool, 1)
	go func() {
		var stop container.Stop
		alive := messages.Receive(&stop) == nil && stop.Stop
		box.kill()
		stopped <- alive
	}()
	box.wait()
	select {
	case alive := <-stopped:
		if !alive {
			return box.remove()
		}
	case <-time.After(100 * time.Millisecond): // it ended by itself, and the supervisor is there to see it
	}
	return nil
}

// launch makes the container, with the files that the supervisor left for it.
func launch(setup container.Setup) (*box, error) {
	files := []*os.File{
		os.NewFile(container.KeeperWireDescriptor, "keeper-wire"),
		os.NewFile(container.ProgramDescriptor, "program"),
		os.NewFile(container.LaunchWireDescriptor, "launch-wire"),
	}
	defer func() {
		for _, f := range files { // while one end is open here, the end of the other process is not seen
			f.Close()
		}
	}()
	if err := container.Seclude(); err != nil {
		return nil, err
	}
	return newBox(setup, files)
}
