package filelock

import (
	"os"
	"time"
)

// pause is the time between two attempts.
const pause = time.Millisecond

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
