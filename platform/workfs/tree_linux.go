package workfs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// budget counts down one operation's Bounds.
type budget struct {
	left Bounds
	made Bounds
}

func newBudget(b Bounds) *budget { return &budget{left: b, made: b} }

func (b *budget) entry(depth int) error {
	if b.left.Entries--; b.left.Entries < 0 {
		return fmt.Errorf("more than %d names: %w", b.made.Entries, ErrTooBig)
	}
	if depth > b.made.Depth {
		return fmt.Errorf("deeper than %d folders: %w", b.made.Depth, ErrTooBig)
	}
	return nil
}

func (b *budget) bytes(n int64) error {
	if b.left.Bytes -= n; b.left.Bytes < 0 {
		return fmt.Errorf("more than %d bytes: %w", b.made.Bytes, ErrTooBig)
	}
	return nil
}

// RemoveAll removes rel and what is below it. It never enters another mount (rmdir of a mount point is EBUSY).
func (r *Root) RemoveAll(rel string, b Bounds) error {
	d, base, err := r.parent(rel)
	if err != nil {
		return r.fail("remove", rel, err)
	}
	defer d.Close()
	if err := d.removeAll(base, newBudget(b), 0); err != nil {
		return r.fail("remove", rel, err)
	}
	return d.Sync()
}

func (d *Dir) removeAll(name string, b *budget, depth int) error {
	if err := b.entry(depth); err != nil {
		return err
	}
	err := retry(func() error { return unix.Unlinkat(d.fd, name, 0) })
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR {
		return err
	}
	sub, err := d.openDirForced(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := sub.sameMount(d); err != nil {
		return err
	}
	list, err := sub.Entries(b.left.Entries)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := sub.removeAll(e.Name, b, depth+1); err != nil {
			return err
		}
	}
	return retry(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) })
}

// sameMount refuses a folder on another mount than its parent: its names belong to somebody else.
func (d *Dir) sameMount(parent *Dir) error {
	above, _, err := parent.Mount()
	if err != nil {
		return err
	}
	here, _, err := d.Mount()
	if err != nil {
		return err
	}
	if here != above {
		return unix.EXDEV
	}
	return nil
}

// openDirForced opens a folder whose owner took the rights away, by giving them back: a process as the same user may do
// the same, so mode 000 must not keep the supervisor out.
func (d *Dir) openDirForced(name string) (*Dir, error) {
	sub, err := d.OpenDir(name)
	if err == nil {
		if info, serr := sub.Stat(); serr == nil && info.Mode&0o700 != 0o700 {
			err = unix.Fchmod(sub.fd, kernelMode(info.Mode|0o700))
		}
		if err != nil && err != unix.EPERM {
			sub.Close()
			return nil, err
		}
		return sub, nil
	}
	if err != unix.EACCES {
		return nil, err
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := retryFd(func() (int, error) { return unix.Openat(d.fd, name, flags, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	info, err := (&Dir{fd: fd}).Stat()
	if err != nil {
		return nil, err
	}
	if err := chmodFd(fd, info.Mode|0o700); err != nil {
		return nil, err
	}
	return d.OpenDir(name)
}

// CopyTo copies rel to a name that does not exist yet below dst, with modes, times and (as root) owners. Symlinks stay
// symlinks. Sockets, fifos and devices are not copied; their paths below rel are returned.
func (r *Root) CopyTo(rel string, dst *Root, to string, b Bounds) (skipped []string, err error) {
	src, base, err := r.parent(rel)
	if err != nil {
		return nil, r.fail("copy", rel, err)
	}
	defer src.Close()
	into, name, err := dst.parent(to)
	if err != nil {
		return nil, dst.fail("copy to", to, err)
	}
	defer into.Close()
	c := &copier{budget: newBudget(b)}
	if err := c.copy(place{src, base}, place{into, name}, ".", 0); err != nil {
		return nil, r.fail("copy", rel, err)
	}
	return c.skipped, into.Sync()
}

// place is one name in one open folder.
type place struct {
	dir  *Dir
	name string
}

type copier struct {
	budget  *budget
	skipped []string
}

func (c *copier) copy(from, to place, rel string, depth int) error {
	if err := c.budget.entry(depth); err != nil {
		return err
	}
	info, err := from.dir.Lstat(from.name)
	if err != nil {
		return err
	}
	switch info.Kind {
	case Regular:
		err = c.copyFile(from, to)
	case Directory:
		err = c.copyDir(from, to, rel, depth)
	case Symlink:
		err = copyLink(from, to, info)
	default:
		c.skipped = append(c.skipped, rel)
		return nil
	}
	if err != nil {
		return err
	}
	return to.dir.setTimes(to.name, info.ModTime)
}

func (c *copier) copyFile(from, to place) error {
	in, info, err := from.dir.Open(from.name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.dir.create(to.name)
	if err != nil {
		return err
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(in, c.budget.left.Bytes+1))
	if err != nil {
		return err
	}
	if err := c.budget.bytes(n); err != nil {
		return err
	}
	if err := settle(out, info); err != nil {
		return err
	}
	return out.Sync()
}

func copyLink(from, to place, info Info) error {
	target, err := from.dir.Readlink(from.name)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, to.dir.fd, to.name); err != nil {
		return err
	}
	err = unix.Fchownat(to.dir.fd, to.name, int(info.UID), int(info.GID), unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EPERM {
		return nil
	}
	return err
}

func (c *copier) copyDir(from, to place, rel string, depth int) error {
	before, err := from.dir.Lstat(from.name)
	if err != nil {
		return err
	}
	src, err := from.dir.openDirForced(from.name)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := unix.Mkdirat(to.dir.fd, to.name, 0o700); err != nil {
		return err
	}
	dst, err := to.dir.OpenDir(to.name)
	if err != nil {
		return err
	}
	defer dst.Close()
	list, err := src.Entries(c.budget.left.Entries)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := c.copy(place{src, e.Name}, place{dst, e.Name}, Join(rel, e.Name), depth+1); err != nil {
			return err
		}
	}
	if err := unix.Fchown(dst.fd, int(before.UID), int(before.GID)); err != nil && err != unix.EPERM {
		return err
	}
	if err := unix.Fchmod(dst.fd, kernelMode(before.Mode)); err != nil {
		return err
	}
	return retry(func() error { return unix.Fsync(dst.fd) })
}

// Digest is the SHA-256 over names, kinds, modes of files, link texts and contents of rel and everything below it. Times, owners and
// modes of folders are left out: they change without the meaning changing.
func (r *Root) Digest(rel string, b Bounds) (string, error) {
	d, base, err := r.parent(rel)
	if err != nil {
		return "", r.fail("digest", rel, err)
	}
	defer d.Close()
	h := &hasher{sum: sha256.New(), budget: newBudget(b)}
	if err := h.add(d, base, "", 0); err != nil {
		return "", r.fail("digest", rel, err)
	}
	return hex.EncodeToString(h.sum.Sum(nil)), nil
}

type hasher struct {
	sum    hash.Hash
	budget *budget
}

// add writes length-prefixed fields, so no two trees share an encoding. The top name is left out: it may be moved.
func (h *hasher) add(d *Dir, name, label string, depth int) error {
	if err := h.budget.entry(depth); err != nil {
		return err
	}
	info, err := d.Lstat(name)
	if err != nil {
		return err
	}
	mode := kernelMode(info.Mode &^ fs.ModeType)
	if info.Kind == Directory { // a folder without rights is given some to move it
		mode = 0
	}
	fmt.Fprintf(h.sum, "%d %q %d %o\n", depth, label, info.Kind, mode)
	switch info.Kind {
	case Regular:
		return h.file(d, name)
	case Symlink:
		target, err := d.Readlink(name)
		fmt.Fprintf(h.sum, "%q\n", target)
		return err
	case Directory:
		return h.folder(d, name, depth)
	}
	return nil
}

func (h *hasher) file(d *Dir, name string) error {
	f, _, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	inner := sha256.New()
	n, err := io.Copy(inner, io.LimitReader(f, h.budget.left.Bytes+1))
	if err != nil {
		return err
	}
	h.sum.Write(inner.Sum(nil))
	return h.budget.bytes(n)
}

func (h *hasher) folder(d *Dir, name string, depth int) error {
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	list, err := sub.Entries(h.budget.left.Entries)
	if err != nil {
		return err
	}
	fmt.Fprintf(h.sum, "%d\n", len(list))
	for _, e := range list {
		if err := h.add(sub, e.Name, e.Name, depth+1); err != nil {
			return err
		}
	}
	return nil
}
