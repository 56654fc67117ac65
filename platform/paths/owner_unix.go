//go:build unix

package paths

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func checkOwner(dir string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: %w: its owner is unknown", dir, ErrUnsafe)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to uid %d, this is uid %d", dir, ErrUnsafe, stat.Uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return fmt.Errorf("%s: %w: mode %04o lets others write", dir, ErrUnsafe, perm)
	}
	return nil
}
