package changes

import (
	"errors"
	"syscall"
)

// notFolder says that something on the way to a path is no folder, or a link.
func notFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}
