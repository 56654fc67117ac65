//go:build unix

package wallspec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// LocalFiles looks at the file system of this machine.
func LocalFiles() Files { return Files{Lstat: lstat, Readlink: os.Readlink, ReadFile: readFile} }

func lstat(path string) (Info, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi fs.FileInfo) Info {
	in := Info{Mode: fi.Mode(), UID: -1, GID: -1}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		in.Device, in.Inode = uint64(st.Dev), st.Ino
		in.UID, in.GID = int(st.Uid), int(st.Gid)
	}
	return in
}

func readFile(path string, limit int64) (data []byte, in Info, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Info{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return nil, Info{}, err
	}
	if !fi.Mode().IsRegular() {
		return nil, Info{}, fmt.Errorf("%q is not a regular file", path)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%q has more than %d bytes", path, limit)
	}
	return data, infoOf(fi), err
}
