package workfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is one open folder. Its methods take single names, so one openat(2) with O_NOFOLLOW is as safe as openat2 and
// cheaper: this is what a walk uses. The owner closes it.
type Dir struct{ fd int }

// Close releases the folder.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// OpenDir opens the folder called name.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := retryFd(func() (int, error) { return unix.Openat(d.fd, name, flags, 0) })
	if err != nil {
		return nil, err
	}
	return &Dir{fd: fd}, nil
}

// Stat describes the folder itself.
func (d *Dir) Stat() (Info, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(d.fd, "", &st, unix.AT_EMPTY_PATH) }); err != nil {
		return Info{}, err
	}
	return infoOf(&st), nil
}

// Mount identifies the mount and file system a folder is on.
type Mount struct{ ID, Dev uint64 }

// Mount tells which mount the folder is on. The id is zero below Linux 5.8, where only the device can differ.
func (d *Dir) Mount() (Mount, uint64, error) {
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(d.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	})
	if err != nil {
		return Mount{}, 0, err
	}
	m := Mount{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor)}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		m.ID = st.Mnt_id
	}
	return m, st.Ino, nil
}

// Synthetic reports a file system that the kernel makes up: proc, sysfs, cgroup and their kin. Nothing can be made there
// and its trees have no end worth walking.
func (d *Dir) Synthetic() (bool, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return false, err
	}
	switch int64(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC,
		unix.SELINUX_MAGIC, unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC:
		return true, nil
	}
	return false, nil
}

// Lstat describes name without following it.
func (d *Dir) Lstat(name string) (Info, error) {
	if err := checkName(name); err != nil {
		return Info{}, err
	}
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return Info{}, err
	}
	return infoOf(&st), nil
}

// Readlink returns the text of the symlink called name.
func (d *Dir) Readlink(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := retryFd(func() (int, error) { return unix.Readlinkat(d.fd, name, buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// openRegular looks before it opens, because opening a device has effects, and looks again at what it got.
func (d *Dir) openRegular(name string) (int, Info, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return -1, Info{}, err
	}
	if info.Kind != Regular {
		return -1, Info{}, fmt.Errorf("a %v: %w", info.Kind, ErrKind)
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	fd, err := retryFd(func() (int, error) { return unix.Openat(d.fd, name, flags, 0) })
	if err != nil {
		return -1, Info{}, err
	}
	got, err := (&Dir{fd: fd}).Stat()
	if err == nil && got.Kind != Regular {
		err = fmt.Errorf("a %v: %w", got.Kind, ErrKind)
	}
	if err != nil {
		unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, got, nil
}

// Open opens the regular file called name for reading.
func (d *Dir) Open(name string) (*os.File, Info, error) {
	fd, info, err := d.openRegular(name)
	if err != nil {
		return nil, Info{}, err
	}
	return os.NewFile(uintptr(fd), name), info, nil
}

// ReadHead reads the first max bytes of the regular file called name.
func (d *Dir) ReadHead(name string, max int) ([]byte, Info, error) {
	fd, info, err := d.openRegular(name)
	if err != nil {
		return nil, Info{}, err
	}
	defer unix.Close(fd)
	buf := make([]byte, min(int64(max), info.Size))
	n := 0
	for n < len(buf) {
		got, err := retryFd(func() (int, error) { return unix.Pread(fd, buf[n:], int64(n)) })
		if err != nil {
			return nil, Info{}, err
		}
		if got == 0 {
			break
		}
		n += got
	}
	return buf[:n], info, nil
}

// direntBytes is a full buffer of names; glibc uses 32 KiB.
const direntBytes = 64 << 10

// NewDirBuffer makes a buffer for Each, to be reused over many folders.
func NewDirBuffer() []byte { return make([]byte, direntBytes) }

// Each calls f for every name except "." and "..", in the file system's order, with name valid only during the call.
// It reads with getdents64(2), so the type costs no stat. The folder's position is left at the end.
func (d *Dir) Each(buf []byte, f func(name []byte, kind Kind, ino uint64) error) error {
	if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
		return err
	}
	for {
		n, err := retryFd(func() (int, error) { return unix.Getdents(d.fd, buf) })
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := eachDirent(buf[:n], f); err != nil {
			return err
		}
	}
}

// eachDirent walks struct linux_dirent64: ino u64, off s64, reclen u16, type u8, name with NUL.
func eachDirent(buf []byte, f func(name []byte, kind Kind, ino uint64) error) error {
	const header = 19
	for len(buf) > header {
		reclen := int(binary.NativeEndian.Uint16(buf[16:]))
		if reclen <= header || reclen > len(buf) {
			return fmt.Errorf("directory record of %d bytes: %w", reclen, unix.EIO)
		}
		name := buf[header:reclen]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		ino, kind := binary.NativeEndian.Uint64(buf), kindOfDirent(buf[18])
		buf = buf[reclen:]
		if len(name) == 0 || string(name) == "." || string(name) == ".." {
			continue
		}
		if bytes.IndexByte(name, '/') >= 0 { // a broken or hostile (FUSE) file system
			return fmt.Errorf("directory record with a slash: %w", unix.EIO)
		}
		if err := f(name, kind, ino); err != nil {
			return err
		}
	}
	return nil
}

// Entries lists at most max names, sorted by bytes, with every kind known.
func (d *Dir) Entries(max int) ([]Entry, error) {
	var list []Entry
	err := d.Each(NewDirBuffer(), func(name []byte, kind Kind, ino uint64) error {
		if len(list) == max {
			return fmt.Errorf("more than %d names: %w", max, ErrTooBig)
		}
		list = append(list, Entry{Name: string(name), Kind: kind, Ino: ino})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Kind != Unknown {
			continue
		}
		if info, err := d.Lstat(list[i].Name); err == nil {
			list[i].Kind = info.Kind
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func kindOfDirent(t byte) Kind {
	switch t {
	case unix.DT_REG:
		return Regular
	case unix.DT_DIR:
		return Directory
	case unix.DT_LNK:
		return Symlink
	case unix.DT_SOCK:
		return Socket
	case unix.DT_FIFO:
		return Fifo
	case unix.DT_CHR, unix.DT_BLK:
		return Device
	}
	return Unknown
}

func kindOfMode(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFIFO:
		return Fifo
	}
	return Device
}

func infoOf(st *unix.Stat_t) Info {
	mode := fs.FileMode(st.Mode & 0o777)
	if st.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return Info{
		Kind: kindOfMode(st.Mode), Mode: mode, Size: st.Size, Nlink: uint64(st.Nlink), UID: st.Uid, GID: st.Gid,
		Dev: uint64(st.Dev), Ino: st.Ino, Rdev: uint64(st.Rdev),
		ModTime: time.Unix(st.Mtim.Unix()), Change: time.Unix(st.Ctim.Unix()),
	}
}

// kernelMode is the inverse of infoOf for chmod.
func kernelMode(mode fs.FileMode) uint32 {
	m := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		m |= unix.S_ISUID
	}
	if mode&fs.ModeSetgid != 0 {
		m |= unix.S_ISGID
	}
	if mode&fs.ModeSticky != 0 {
		m |= unix.S_ISVTX
	}
	return m
}
