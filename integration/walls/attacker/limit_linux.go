package main

import (
	"fmt"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// limits ask for more than a session gets. What needs many processes or much memory is in the tests, with small
// limits given by name.
func limits() []attempt {
	return []attempt{
		{"limit-file-size", func(t *target) error {
			signal.Ignore(unix.SIGXFSZ)
			file := filepath.Join(t.Scratch, "huge")
			if err := create(file); err != nil {
				return err
			}
			return unix.Truncate(file, 1<<40) // sparse: takes no space where it works
		}},
		{"limit-raise", func(*target) error {
			var old unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NPROC, &old); err != nil {
				return err
			}
			if old.Max == unix.RLIM_INFINITY {
				old.Max = 1 << 20
				if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: old.Max, Max: old.Max}); err != nil {
					return err
				}
			}
			raised := unix.Rlimit{Cur: old.Max + 1, Max: old.Max + 1}
			return unix.Setrlimit(unix.RLIMIT_NPROC, &raised)
		}},
		{"limit-core", func(*target) error {
			var core unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
				return err
			}
			if core.Max == 0 {
				return fmt.Errorf("no core is written: %w", unix.EPERM)
			}
			return nil
		}},
		{"limit-tmp", func(*target) error {
			fd, err := unix.Open("/tmp", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Fallocate(fd, 0, 0, 12<<30) // refused as a whole: nothing is allocated
		}},
		{"limit-nice", func(*target) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) }},
		{"limit-realtime", func(*target) error {
			return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 1, Priority: 1}, 0)
		}},
	}
}
