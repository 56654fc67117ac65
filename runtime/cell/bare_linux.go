package cell

import (
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce/native"
)

// enterBare is what the backend bare can do before Landlock and seccomp: keep children of the
// same user from taking the wire out of this process (pidfd_getfd(2), /proc/PID/mem), and give up
// what privilege there is.
func enterBare() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return native.DropPrivileges()
}
