package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// foreign makes system calls by the numbers of other architectures, where a filter that looks at numbers alone would
// see other calls. The filter kills for that, so each is made by a child.
func foreign() []attempt {
	return []attempt{
		{"foreign-x32", func(*target) error { return foreignCall("-x32") }},
		{"foreign-i386", func(*target) error { return foreignCall("-i386") }},
	}
}

func foreignCall(which string) error {
	err := exec.Command("/proc/self/exe", which).Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		if s, ok := ended.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return fmt.Errorf("the child was killed by %v: %w", s.Signal(), unix.EPERM)
		}
		return fmt.Errorf("the call was refused: %w", unix.ENOSYS)
	}
	return err
}

// helped does what a child of an attempt is asked to do.
func helped(flag string) bool {
	switch flag {
	case "-euid": // asked of the set-user-id copy
		fmt.Println(os.Geteuid())
	case "-x32":
		if call(unix.SYS_GETPID|0x40000000) != nil {
			os.Exit(1)
		}
	case "-i386":
		if int80() <= 0 {
			os.Exit(1)
		}
	default:
		return false
	}
	return true
}
