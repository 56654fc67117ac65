package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// New makes a network namespace. It lives as long as the file and what runs in it; the caller closes the file.
func New() (*os.File, error) {
	var file *os.File
	err := OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return file, err
}

// In runs f inside a network namespace: sockets and processes that it makes belong there.
func In(ns *os.File, f func() error) error {
	return OnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// OnThread runs f on a thread that ends with it, so that what f changes of the thread stays without effect on others. A
// process that is started there with a parent-death signal ends with it too (prctl(2)).
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// IP runs ip(8) once for each line, in the calling thread's namespace.
func IP(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}
