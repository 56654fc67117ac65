package install

import (
	"fmt"
	"io/fs"
	"syscall"
)

func owner(info fs.FileInfo) (uint32, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("the owner of %s is unknown", info.Name())
	}
	return stat.Uid, nil
}
