package filelock

import (
	"os"

	"golang.org/x/sys/windows"
)

// Try takes an exclusive lock on the first byte (LockFileEx) if nobody has it.
func Try(f *os.File) bool {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{}) == nil
}
