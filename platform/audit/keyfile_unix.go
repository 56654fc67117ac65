//go:build unix

package audit

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkKeyFile refuses a key that another user could read or have planted.
func checkKeyFile(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is not a regular file (%s)", info.Mode().Type())
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("it does not belong to uid %d", os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("mode %04o lets others in", info.Mode().Perm())
	}
	return nil
}
