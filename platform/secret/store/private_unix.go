//go:build unix

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const (
	noFollow = syscall.O_NOFOLLOW
	noWait   = syscall.O_NONBLOCK
)

// linkProblem names what O_NOFOLLOW reports as ELOOP (open(2)).
func linkProblem(err error) error {
	if errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%w: it is a symbolic link", errExposed)
	}
	return err
}

func checkPrivate(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%w: it does not belong to uid %d", errExposed, os.Geteuid())
	case stat.Nlink != 1:
		return fmt.Errorf("%w: it has another name (hard link)", errExposed)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: mode %04o lets others in", errExposed, info.Mode().Perm())
	}
	return nil
}
