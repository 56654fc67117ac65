package cell_test

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostile is a command that attacks the cell, or looks at what it was given. It prints what it saw.
func hostile(what string) int {
	what, arg, _ := strings.Cut(what, ":")
	switch what {
	case "descriptors":
		printDescriptors()
	case "signals":
		printSignals()
	case "arguments":
		for _, a := range os.Args {
			fmt.Printf("%q\n", a)
		}
	case "length":
		n := 0
		for _, a := range os.Args[1:] {
			n += len(a)
		}
		fmt.Println(len(os.Args)-1, n)
	case "reach":
		reach(arg)
	case "forge":
		forgeFault()
	default:
		return 2
	}
	return 0
}

// printDescriptors asks for each number, because /proc may be missing.
func printDescriptors() {
	var open []string
	for fd := range 4096 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			open = append(open, strconv.Itoa(fd))
		}
	}
	fmt.Println(strings.Join(open, " "))
}

// printSignals prints which signals are blocked or ignored. Handlers that the Go runtime of this
// command installed are its own; SIG_IGN can only be inherited.
func printSignals() {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &mask); err != nil {
		fmt.Println(err)
		return
	}
	var ignored []string
	for n := 1; n <= 64; n++ {
		var action [4]uintptr // the handler comes first on every architecture but MIPS
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0)
		if errno != 0 {
			fmt.Println(errno)
			return
		}
		if action[0] == 1 {
			ignored = append(ignored, unix.SignalName(syscall.Signal(n)))
		}
	}
	sort.Strings(ignored)
	fmt.Printf("blocked %x ignored %v\n", mask.Val[0], ignored)
}

// reach tries to get at the cell, whose process id it is told.
func reach(cell string) {
	pid, err := strconv.Atoi(cell)
	if err != nil {
		fmt.Println(err)
		return
	}
	report := func(attack string, err error) {
		if err == nil {
			fmt.Println(attack, "LEAKED")
			return
		}
		fmt.Println(attack, "stopped")
	}
	if fd, err := unix.PidfdOpen(pid, 0); err != nil {
		fmt.Println("pidfd_open:", err)
	} else {
		_, err = unix.PidfdGetfd(fd, 3, 0)
		report("pidfd_getfd", err)
	}
	report("ptrace", unix.PtraceSeize(pid))
	for _, name := range []string{"mem", "environ", "maps", "fd/3"} {
		f, err := os.OpenFile("/proc/"+cell+"/"+name, os.O_RDONLY, 0)
		if err == nil {
			var b [1]byte
			_, err = f.Read(b[:])
			f.Close()
		}
		report(name, err)
	}
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	report("process_vm_readv", err)
}

// forgeFault sends PID 1 a SIGSEGV that claims to be no kill(2), which the Go runtime of the
// receiver takes for a fault of its own.
func forgeFault() {
	info := unix.Siginfo{Signo: int32(unix.SIGSEGV), Code: -1}
	_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&info)))
	fmt.Println(errno)
}
