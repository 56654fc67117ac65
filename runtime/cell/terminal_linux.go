package cell

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// terminal is a new pseudo-terminal of the cell's own devpts.
type terminal struct {
	master *os.File
	copy   *os.File // a second descriptor of the master, for the supervisor
	slave  *os.File
}

// openTerminal makes a terminal of the given size. The slave is opened through the master
// (TIOCGPTPEER, Linux 4.13, ioctl_tty(2)), so that no look-up of a path can find another file.
func openTerminal(rows, cols uint16) (_ *terminal, err error) {
	// Non-blocking, because the supervisor reads it with a poller; the flag belongs to the
	// master's open file and not to the slave's.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, cannotStart(err, "open /dev/ptmx")
	}
	t := &terminal{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, cannotStart(err, "unlock terminal")
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, cannotStart(errno, "open terminal")
	}
	t.slave = os.NewFile(slave, "terminal")
	if err := setWindowSize(t.master, rows, cols); err != nil {
		return nil, cannotStart(err, "set terminal size")
	}
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, cannotStart(err, "copy terminal")
	}
	t.copy = os.NewFile(uintptr(second), "/dev/ptmx")
	return t, nil
}

func (t *terminal) close() {
	for _, f := range []*os.File{t.master, t.copy, t.slave} {
		if f != nil {
			f.Close()
		}
	}
}

func setWindowSize(master *os.File, rows, cols uint16) error {
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		return fmt.Errorf("cell: window size %dx%d: %w", rows, cols, err)
	}
	return nil
}

// groups lists the process groups that a signal to the command goes to: its own, and with a
// terminal the foreground job and every other job of its session that /proc shows.
func (c *command) groups() []int {
	groups := []int{c.pid}
	if c.master == nil {
		return groups
	}
	add := func(group int) {
		for _, g := range groups {
			if g == group {
				return
			}
		}
		if group > 1 {
			groups = append(groups, group)
		}
	}
	if fg, err := unix.IoctlGetInt(int(c.master.Fd()), unix.TIOCGPGRP); err == nil {
		add(fg)
	}
	all, err := processes()
	if err != nil {
		return groups // without /proc the two groups above are what can be known
	}
	for _, p := range all {
		if p.session == c.pid {
			add(p.group)
		}
	}
	return groups
}
