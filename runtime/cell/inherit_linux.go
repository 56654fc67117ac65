package cell

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSignal is the last signal number of Linux on every architecture but MIPS.
const maxSignal = 64

// ClearSignalMask unblocks all signals on the calling thread. It is of use right before an exec:
// the Go runtime gives children the mask that the process was started with, and nothing can change
// that later.
func ClearSignalMask() error {
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		return fmt.Errorf("cell: clear signal mask: %w", err)
	}
	return nil
}

// BlockedSignal names a signal that this process was started with blocked, or nothing.
func BlockedSignal() (string, error) {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &mask); err != nil {
		return "", fmt.Errorf("cell: read signal mask: %w", err)
	}
	wordBits := 1024 / len(mask.Val)
	for n := range maxSignal {
		if uint64(mask.Val[n/wordBits])&(1<<(n%wordBits)) != 0 {
			return unix.SignalName(syscall.Signal(n + 1)), nil
		}
	}
	return "", nil
}

// requireClearMask refuses to serve with blocked signals, which every command would inherit: a
// shell whose SIGINT or SIGCHLD is blocked looks broken.
func requireClearMask() error {
	name, err := BlockedSignal()
	if err == nil && name != "" {
		err = fmt.Errorf("cell: started with signal %s blocked, commands would inherit that", name)
	}
	return err
}

// closeOnExecFrom marks every descriptor from first on, so that commands get none of them even if
// whoever started this process forgot the mark.
func closeOnExecFrom(first int) error {
	err := unix.CloseRange(uint(first), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	if err != unix.ENOSYS && err != unix.EINVAL { // before Linux 5.9, before 5.11
		return fmt.Errorf("cell: close_range from %d: %w", first, err)
	}
	return closeOnExecListed(first)
}

// closeOnExecListed does the same on old kernels.
func closeOnExecListed(first int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("cell: list descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("cell: list descriptors: entry %q is not a number", e.Name())
		}
		if fd < first {
			continue
		}
		// EBADF is the descriptor of the listing itself.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && err != unix.EBADF {
			return fmt.Errorf("cell: set close-on-exec on descriptor %d: %w", fd, err)
		}
	}
	return nil
}
