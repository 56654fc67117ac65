package filelock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pause is the time between two attempts.
const pause = time.Millisecond

// Try takes an exclusive lock (flock(2)) if nobody has it.
func Try(f *os.File) bool {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// Within takes an exclusive lock, waiting a bounded time: a descriptor that a stopped process holds
// must not stop everybody else.
func Within(f *os.File, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		if Try(f) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
}
