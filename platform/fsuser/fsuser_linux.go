package fsuser

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Run calls f as the user for files. Whoever is not root can only be itself. f must not start goroutines that touch
// files: they would run with the process's own ids.
func Run(uid, gid int, f func() error) error {
	if euid := os.Geteuid(); euid != 0 {
		if uid != euid {
			return fmt.Errorf("act on files of user %d as user %d: %w", uid, euid, unix.EPERM)
		}
		return f()
	}
	if uid == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := become(uid, gid); err != nil {
			done <- fmt.Errorf("take the file rights of user %d: %w", uid, err)
			return
		}
		done <- f()
	}()
	return <-done
}

func become(uid, gid int) error {
	group := uint32(gid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0); errno != 0 {
		return errno
	}
	unix.SetfsgidRetGid(gid)
	unix.SetfsuidRetUid(uid)
	// Both calls return the id before them and never an error, so an impossible id asks what is set.
	if got, _ := unix.SetfsgidRetGid(-1); got != gid {
		return unix.EPERM
	}
	if got, _ := unix.SetfsuidRetUid(-1); got != uid {
		return unix.EPERM
	}
	return nil
}
