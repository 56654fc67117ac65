package probe

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

func life() []attempt {
	return []attempt{
		{name: "parent-death-signal", wall: enforce.Life, run: readParentDeath},
		// The kernel ends every process of a pid namespace when its number 1 ends.
		{name: "number-one", wall: enforce.Life, only: enforce.Native, run: func(b *battery) result {
			return judgeNumber("process id", os.Getpid(), 1)
		}},
		{name: "parent-outside", wall: enforce.Life, only: enforce.Native, run: func(b *battery) result {
			return judgeNumber("parent id", os.Getppid(), 0)
		}},
	}
}

func judgeNumber(what string, got, want int) result {
	detail := fmt.Sprintf("%s %d, want %d", what, got, want)
	if got != want {
		return leaked(detail)
	}
	return stopped(detail)
}

// readParentDeath reads a property of the calling thread; only the main thread has it.
func readParentDeath(b *battery) result {
	if unix.Gettid() != b.pid {
		return unclear("the battery does not run on the main thread")
	}
	var sig int32
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0); errno != 0 {
		return unclear(errnoName(errno))
	}
	return judgeNumber("signal", int(sig), int(unix.SIGKILL))
}
