package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Load puts the filter of a variant on every thread of the process, for good; children inherit it.
//
// It sets no_new_privs on the calling thread first (which is what lets an unprivileged process load a filter, and
// what keeps a set-user-id program from meeting one), and the kernel gives both to all other threads in one step
// (SECCOMP_FILTER_FLAG_TSYNC, seccomp(2)). It works if a filter is in place already, as in a container, unless some
// thread has a filter the caller does not have: then nothing is loaded and the error names the thread.
func Load(v Variant) error {
	prog, err := Program(v, runtime.GOARCH)
	if err != nil {
		return err
	}
	return load(prog)
}

func load(prog []Instruction) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
	}
	// Instruction has the layout of struct sock_filter: the sizes are compared in the tests.
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0]))}
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp filter of %d instructions: %w", len(prog), errno)
	}
	if tid != 0 {
		// Not an errno: seccomp(2) returns the thread that could not be brought in line, and loads nothing.
		return fmt.Errorf("seccomp filter: thread %d has a filter of its own", tid)
	}
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("prctl PR_GET_SECCOMP: %w", err)
	}
	if mode != unix.SECCOMP_MODE_FILTER {
		return fmt.Errorf("seccomp mode is %d after the load, want %d", mode, unix.SECCOMP_MODE_FILTER)
	}
	return nil
}
