package workfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file holds what is done to single names of an open folder. None of these functions makes names durable: who changes
// thousands of files calls Sync or SyncFS once.

// Parent opens the folder that holds rel, for work on that name. The folder cannot be listed.
func (r *Root) Parent(rel string) (*Dir, string, error) {
	d, base, err := r.parent(rel)
	if err != nil {
		return nil, "", r.fail("open folder of", rel, err)
	}
	return d, base, nil
}

// Create makes a new file that nobody else can read yet.
func (d *Dir) Create(name string) (*os.File, error) { return d.create(name) }

// Symlink makes a symlink with this text.
func (d *Dir) Symlink(target, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return unix.Symlinkat(target, d.fd, name)
}

// Link gives a file or symlink a second name.
func (d *Dir) Link(name string, to *Dir, as string) error {
	if err := checkName(as); err != nil {
		return err
	}
	return unix.Linkat(d.fd, name, to.fd, as, 0)
}

// Mkdir makes a folder; the umask applies.
func (d *Dir) Mkdir(name string, perm fs.FileMode) error {
	if err := checkName(name); err != nil {
		return err
	}
	return retry(func() error { return unix.Mkdirat(d.fd, name, kernelMode(perm)) })
}

// Remove removes a name that is no folder.
func (d *Dir) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return retry(func() error { return unix.Unlinkat(d.fd, name, 0) })
}

// Rmdir removes an empty folder.
func (d *Dir) Rmdir(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return retry(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) })
}

// Rename says what a rename may do to the new name.
type Rename uint

// The ways to rename.
const (
	NoReplace Rename = unix.RENAME_NOREPLACE // EEXIST if something stands there
	Exchange  Rename = unix.RENAME_EXCHANGE  // both names must exist and change places
)

// Rename moves name into another folder. ErrCrossDevice if that is on another file system.
func (d *Dir) Rename(name string, to *Dir, as string, how Rename) error {
	for _, n := range [...]string{name, as} {
		if err := checkName(n); err != nil {
			return err
		}
	}
	err := retry(func() error { return unix.Renameat2(d.fd, name, to.fd, as, uint(how)) })
	if err == unix.EXDEV {
		return ErrCrossDevice
	}
	return err
}

// SetTimes gives name its modification time without following it.
func (d *Dir) SetTimes(name string, mtime time.Time) error {
	if err := checkName(name); err != nil {
		return err
	}
	return d.setTimes(name, mtime)
}

// SetTimes gives the root itself its modification time.
func (r *Root) SetTimes(mtime time.Time) error {
	ts := unix.NsecToTimespec(mtime.UnixNano())
	return unix.UtimesNanoAt(r.dir.fd, ".", []unix.Timespec{ts, ts}, 0)
}

// Chmod changes the mode of a file or folder, never of what a symlink points to.
func (d *Dir) Chmod(name string, mode fs.FileMode) error {
	if err := checkName(name); err != nil {
		return err
	}
	fd, err := retryFd(func() (int, error) { return unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return chmodFd(fd, mode)
}

// ChownLike gives name the group of another file where that is possible, and as root its owner; else it keeps its own.
func (d *Dir) ChownLike(name string, uid, gid uint32) error {
	err := unix.Fchownat(d.fd, name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EPERM {
		err = unix.Fchownat(d.fd, name, -1, int(gid), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == unix.EPERM || err == unix.EINVAL {
		return nil
	}
	return err
}

// OpenForced is Open for a file whose owner took the right to read away: it is given for the moment of opening.
func (d *Dir) OpenForced(name string) (*os.File, Info, error) {
	f, info, err := d.Open(name)
	if err != unix.EACCES {
		return f, info, err
	}
	before, err := d.Lstat(name)
	if err != nil {
		return nil, Info{}, err
	}
	if err := d.Chmod(name, before.Mode|0o400); err != nil {
		return nil, Info{}, err
	}
	f, info, err = d.Open(name)
	if cerr := d.Chmod(name, before.Mode); err == nil && cerr != nil {
		f.Close()
		return nil, Info{}, cerr
	}
	info.Mode = before.Mode
	return f, info, err
}

// OpenDirForced is OpenDir for a folder whose owner took the rights away: it gets them for the moment of opening. The
// folder can then be listed, and its names looked at only with the right to search it.
func (d *Dir) OpenDirForced(name string) (*Dir, error) {
	sub, err := d.OpenDir(name)
	if err != unix.EACCES {
		return sub, err
	}
	return d.openDirForced(name)
}

// xattrBounds: the kernel itself ends a value and a list of names at 64 KiB (xattr(7)).
const (
	maxXattrList  = 64 << 10
	maxXattrTotal = 1 << 20
	userXattr     = "user."
)

// procPath is the path of a name for calls that take no folder descriptor. The folder is held open, so the magic link leads
// to it and nowhere else; the last name is not followed by the l-calls.
func (d *Dir) procPath(name string) string { return "/proc/self/fd/" + strconv.Itoa(d.fd) + "/" + name }

// Xattrs reads the user.* attributes of a file or folder, and the names of those that are not user.*.
func (d *Dir) Xattrs(name string) (user map[string][]byte, other []string, err error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	path := d.procPath(name)
	n, err := unix.Llistxattr(path, nil)
	if err == unix.ENOTSUP || err == nil && n == 0 {
		return nil, nil, nil
	}
	buf := make([]byte, maxXattrList)
	if err == nil {
		n, err = unix.Llistxattr(path, buf)
	}
	if err != nil {
		return nil, nil, err
	}
	user, total := map[string][]byte{}, 0
	for key := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(key, userXattr) {
			other = append(other, key)
			continue
		}
		value := make([]byte, maxXattrList)
		n, err := unix.Lgetxattr(path, key, value)
		if err == unix.ENODATA {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if total += len(key) + n; total > maxXattrTotal {
			return nil, nil, fmt.Errorf("attributes of more than %d bytes: %w", maxXattrTotal, ErrTooBig)
		}
		user[key] = append([]byte{}, value[:n]...)
	}
	return user, other, nil
}

// SetXattrs makes the user.* attributes of name exactly these.
func (d *Dir) SetXattrs(name string, want map[string][]byte) error {
	have, _, err := d.Xattrs(name)
	if err != nil {
		return err
	}
	for key := range have {
		if _, keep := want[key]; keep {
			continue
		}
		if err := unix.Lremovexattr(d.procPath(name), key); err != nil && err != unix.ENODATA {
			return err
		}
	}
	for key, value := range want {
		if old, same := have[key]; same && string(old) == string(value) {
			continue
		}
		if !strings.HasPrefix(key, userXattr) {
			return fmt.Errorf("attribute %q: %w", key, ErrKind)
		}
		if err := unix.Lsetxattr(d.procPath(name), key, value, 0); err != nil {
			return err
		}
	}
	return nil
}

// CopyData copies what in holds into an empty file, sharing blocks where the file system can, and leaves holes as holes: a
// sparse file must not fill the disk. At most max bytes of data are copied.
func CopyData(out, in *os.File, size, max int64) error {
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(in.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, size)
		if max -= end - data; max < 0 {
			return ErrTooBig
		}
		if err := copyRange(out, in, data, end); err != nil {
			return err
		}
		off = end
	}
	return out.Truncate(size)
}

// copyRange uses copy_file_range(2) through io.Copy, which shares blocks on btrfs, XFS and others.
func copyRange(out, in *os.File, from, to int64) error {
	if from >= to {
		return nil
	}
	for _, f := range [...]*os.File{in, out} {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return err
		}
	}
	n, err := io.Copy(out, io.LimitReader(in, to-from))
	if err == nil && n != to-from {
		err = io.ErrUnexpectedEOF // it was made shorter meanwhile
	}
	return err
}

// SyncFS makes everything on the folder's file system durable: cheaper than a thousand fsync calls.
func (r *Root) SyncFS() error { return retry(func() error { return unix.Syncfs(r.dir.fd) }) }

// AsRoot makes the folder the root of a tree of its own; name is for messages.
func (d *Dir) AsRoot(name string) (*Root, error) { return NewRoot(d.fd, name) }
