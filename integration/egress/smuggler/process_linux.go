package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func runProgram(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// processes get a network from another process, or from a namespace of their own.
func processes() []attempt {
	enter := func(name, path string) attempt {
		return attempt{name, func(t *target, mark string) error {
			if path == "" {
				path = fmt.Sprintf("/proc/%d/ns/net", t.Pid)
			}
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return sendTo(t.Net["udp-far4"], []byte(mark))
		}}
	}
	return []attempt{
		{"new-namespaces", func(t *target, mark string) error {
			return errors.Join(runProgram("unshare", "-Urn", "true"), sendTo(t.Net["udp-far4"], []byte(mark)))
		}},
		{"new-network", func(*target, string) error { return unix.Unshare(unix.CLONE_NEWNET) }},
		enter("enter-first", "/proc/1/ns/net"), enter("enter-parent", fmt.Sprintf("/proc/%d/ns/net", os.Getppid())), enter("enter-foreign", ""),
		{"trace-first", func(*target, string) error { return unix.PtraceSeize(1) }},
		{"trace-foreign", func(t *target, _ string) error { return unix.PtraceSeize(t.Pid) }},
		{"io-uring", func(t *target, mark string) error {
			params := make([]byte, 120)
			fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
			if errno != 0 {
				return errno
			}
			// A ring makes sockets and connects without a system call that a filter sees: to have one is enough.
			return unix.Close(int(fd))
		}},
		{"bpf", func(*target, string) error {
			attr := make([]byte, 64)
			return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr[0])), 64)
		}},
	}
}
