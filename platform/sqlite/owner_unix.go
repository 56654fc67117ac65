//go:build unix

package sqlite

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkPrivate refuses a file that another user could have written: SQLite
// trusts the content of its files, the -wal beside it included.
func checkPrivate(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%w: its owner is unknown", ErrUnsafe)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to uid %d, this is uid %d", ErrUnsafe, stat.Uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("%w: mode %04o lets others in", ErrUnsafe, perm)
	}
	return nil
}
