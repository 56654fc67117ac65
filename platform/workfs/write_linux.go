package workfs

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// WriteFileAtomic replaces rel by a new file with the same mode, owner and group; where nothing is there it takes perm and
// the folder's owner. Readers see the old bytes or the new ones. Only a regular file is replaced.
func (r *Root) WriteFileAtomic(rel string, data []byte, perm fs.FileMode) error {
	d, base, err := r.parent(rel)
	if err != nil {
		return r.fail("write", rel, err)
	}
	defer d.Close()
	if err := d.writeAtomic(base, data, perm); err != nil {
		return r.fail("write", rel, err)
	}
	return nil
}

func (d *Dir) writeAtomic(base string, data []byte, perm fs.FileMode) (err error) {
	want, err := d.Lstat(base)
	switch {
	case err == unix.ENOENT:
		if want, err = d.Stat(); err != nil {
			return err
		}
		want.Mode = perm
	case err != nil:
		return err
	case want.Kind != Regular:
		return fmt.Errorf("a %v: %w", want.Kind, ErrKind)
	}
	temp := ".coworker-" + rand.Text()
	f, err := d.create(temp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unix.Unlinkat(d.fd, temp, 0)
		}
	}()
	defer f.Close()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = settle(f, want); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = retry(func() error { return unix.Renameat(d.fd, temp, d.fd, base) }); err != nil {
		return err
	}
	return d.Sync()
}

// settle gives an open file its owner, then its mode (chown clears setuid bits).
func settle(f *os.File, want Info) error {
	fd := int(f.Fd())
	got, err := (&Dir{fd: fd}).Stat()
	if err != nil {
		return err
	}
	if got.UID != want.UID || got.GID != want.GID {
		// An unprivileged supervisor can only keep a group it is in; the owner is then its own anyway.
		if err := unix.Fchown(fd, int(want.UID), int(want.GID)); err != nil && (err != unix.EPERM || os.Geteuid() == 0) {
			return err
		}
	}
	return unix.Fchmod(fd, kernelMode(want.Mode))
}

// create makes a new file that nobody else can read yet.
func (d *Dir) create(name string) (*os.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	fd, err := retryFd(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Sync makes the folder's names durable. A folder opened for lookup only is opened again.
func (d *Dir) Sync() error {
	fd, err := retryFd(func() (int, error) {
		return unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err == unix.EACCES { // a folder one may write but not list: the rename stands, its durability is the kernel's
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return retry(func() error { return unix.Fsync(fd) })
}

// Mkdir makes one folder with exactly this mode.
func (r *Root) Mkdir(rel string, perm fs.FileMode) error {
	d, base, err := r.parent(rel)
	if err != nil {
		return r.fail("mkdir", rel, err)
	}
	defer d.Close()
	if err := retry(func() error { return unix.Mkdirat(d.fd, base, kernelMode(perm)) }); err != nil {
		return r.fail("mkdir", rel, err)
	}
	return nil
}

// Move renames from below r to a name that does not exist yet below dst. EEXIST if it does, ErrCrossDevice if dst is on
// another file system.
func (r *Root) Move(from string, dst *Root, to string) error {
	return r.rename(from, dst, to, unix.RENAME_NOREPLACE)
}

// Replace is Move that may replace a file or an empty folder.
func (r *Root) Replace(from string, dst *Root, to string) error { return r.rename(from, dst, to, 0) }

func (r *Root) rename(from string, dst *Root, to string, flags uint) error {
	src, base, err := r.parent(from)
	if err != nil {
		return r.fail("rename", from, err)
	}
	defer src.Close()
	into, name, err := dst.parent(to)
	if err != nil {
		return dst.fail("rename to", to, err)
	}
	defer into.Close()
	err = retry(func() error { return unix.Renameat2(src.fd, base, into.fd, name, flags) })
	if err == unix.EXDEV {
		err = ErrCrossDevice
	}
	if err != nil {
		return r.fail("rename", from, err)
	}
	if err := into.Sync(); err != nil {
		return dst.fail("sync folder of", to, err)
	}
	if err := src.Sync(); err != nil {
		return r.fail("sync folder of", from, err)
	}
	return nil
}

// Chmod changes the mode of a file or folder, never of what a symlink points to. fchmodat has no NOFOLLOW before Linux
// 6.6, so the inode is held by O_PATH and changed through its own /proc/self/fd link.
func (r *Root) Chmod(rel string, mode fs.FileMode) error {
	fd, err := r.open(rel, unix.O_PATH)
	if err != nil {
		return r.fail("chmod", rel, err)
	}
	defer unix.Close(fd)
	if err := chmodFd(fd, mode); err != nil {
		return r.fail("chmod", rel, err)
	}
	return nil
}

func chmodFd(fd int, mode fs.FileMode) error {
	info, err := (&Dir{fd: fd}).Stat()
	if err != nil {
		return err
	}
	if info.Kind == Symlink {
		return fmt.Errorf("a %v: %w", info.Kind, ErrKind)
	}
	return retry(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), kernelMode(mode)) })
}

// setTimes gives name its modification time without following it.
func (d *Dir) setTimes(name string, mtime time.Time) error {
	ts := unix.NsecToTimespec(mtime.UnixNano())
	return unix.UtimesNanoAt(d.fd, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
