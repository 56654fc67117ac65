// Guestinit is PID 1 of the virtual machines of the kernel matrix. It mounts
// what a Linux system has, loads modules, runs the cases of the plan and powers
// the machine off. It is built static and packed into an initramfs by
// integration/vm; on any other machine it refuses to run.
//
// Nothing that a case could do for itself belongs here: the guest should look
// like a plain Debian host.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/vm/guest"
)

// runnerArg makes the second process. PID 1 only reaps: a program that both
// waits for its own child and collects orphans with wait4(-1) steals the
// child's status from os.Process.Wait.
const runnerArg = "run-cases"

// searchPath finds the commands of cases, and is part of their environment.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// portFD is where the runner finds the result port.
const portFD = 3

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == runnerArg:
		runner()
	case os.Getpid() == 1:
		powerOff(bootAndReap())
	default:
		fmt.Fprintln(os.Stderr, "guestinit: this is the init of a test machine; it does nothing outside one")
		os.Exit(1)
	}
}

// bootAndReap sets the system up, starts the runner and collects orphans until
// the runner has ended.
func bootAndReap() error {
	if err := switchRoot(); err != nil {
		return err
	}
	if err := mountEarly(); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	out := messages{json.NewEncoder(port)}
	plan, err := readPlan()
	if err == nil {
		err = setUp(plan)
	}
	if err != nil {
		return out.fatal(err)
	}
	// A dead-man switch for a guest that nobody watches any more.
	time.AfterFunc(plan.Deadline, func() { powerOff(fmt.Errorf("%s: %s", guest.DeadlineText, plan.Deadline)) })

	var std [portFD + 1]*os.File
	std[0], std[1], std[2], std[portFD] = os.Stdin, os.Stdout, os.Stderr, port
	child, err := os.StartProcess("/init", []string{"/init", runnerArg}, &os.ProcAttr{
		Files: std[:], Dir: "/", Env: []string{searchPath},
	})
	if err != nil {
		return out.fatal(fmt.Errorf("starting the runner: %w", err))
	}
	return reapUntil(child.Pid)
}

func reapUntil(pid int) error {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("waiting for children: %w", err)
		case got == pid && status.ExitStatus() != 0:
			return fmt.Errorf("the runner ended with wait status %#x", int(status))
		case got == pid:
			return nil
		}
	}
}

// powerOff does not return. What went wrong is on the console, which the host
// attaches to its error.
func powerOff(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "guestinit:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "guestinit: power off:", err)
	}
	os.Exit(1) // PID 1 ending is a kernel panic, which ends the emulator too.
}

func readPlan() (guest.Plan, error) {
	var plan guest.Plan
	data, err := os.ReadFile(guest.PlanPath)
	if err != nil {
		return plan, err
	}
	if err := json.Unmarshal(data, &plan); err != nil {
		return plan, fmt.Errorf("%s: %w", guest.PlanPath, err)
	}
	if plan.Deadline <= 0 {
		return plan, fmt.Errorf("%s: deadline %s", guest.PlanPath, plan.Deadline)
	}
	return plan, nil
}

// openPort opens the result port as a plain byte pipe: no echo, no newline
// translation.
func openPort() (*os.File, error) {
	port, err := os.OpenFile(guest.ResultPort, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	term, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		port.Close()
		return nil, fmt.Errorf("%s: TCGETS: %w", guest.ResultPort, err)
	}
	// cfmakeraw(3).
	term.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	term.Oflag &^= unix.OPOST
	term.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	term.Cflag = term.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, term); err != nil {
		port.Close()
		return nil, fmt.Errorf("%s: TCSETS: %w", guest.ResultPort, err)
	}
	return port, nil
}

type messages struct{ enc *json.Encoder }

func (m messages) send(msg guest.Message) error {
	if err := m.enc.Encode(msg); err != nil {
		return fmt.Errorf("writing to %s: %w", guest.ResultPort, err)
	}
	return nil
}

// fatal reports err to the host and returns it for the console.
func (m messages) fatal(err error) error {
	if sendErr := m.send(guest.Message{Fatal: err.Error()}); sendErr != nil {
		return fmt.Errorf("%w (and %w)", err, sendErr)
	}
	return err
}
