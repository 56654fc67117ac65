//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openNoFollow does not block on a FIFO that lies where the file should be.
func openNoFollow(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refuseLink(file, err)
	}
	return f, nil
}

func checkOwner(file string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: %w: its owner is unknown", file, ErrUnsafe)
	}
	switch perm := info.Mode().Perm(); {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to uid %d, this is uid %d", file, ErrUnsafe, st.Uid, os.Geteuid())
	case perm&0o022 != 0:
		return fmt.Errorf("%s: %w: mode %04o lets others write; run chmod go-w on it", file, ErrUnsafe, perm)
	case st.Nlink > 1:
		return fmt.Errorf("%s: %w: it has %d names (hard links)", file, ErrUnsafe, st.Nlink)
	}
	return nil
}
