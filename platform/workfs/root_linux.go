package workfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLookup stays under PATH_MAX (4096 with the NUL): longer paths are opened in steps, because a hostile tree can be
// deeper than any path the kernel accepts.
const maxLookup = 3800

// retry is the one place where EINTR is handled (signal(7): openat and friends on slow file systems).
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// retryFd is retry for calls that return a descriptor or a count.
func retryFd(call func() (int, error)) (int, error) {
	var n int
	err := retry(func() (err error) { n, err = call(); return err })
	return n, err
}

// openBeneath opens one path of at most maxLookup bytes below dirfd.
func openBeneath(dirfd int, rel string, flags int, mode uint32) (int, error) {
	// openat2 refuses flags that O_PATH ignores, so nothing more is added here.
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW),
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	// EAGAIN: a rename raced with the lookup (openat2(2)); a few tries, then it is the caller's.
	for try := 0; ; try++ {
		fd, err := retryFd(func() (int, error) { return unix.Openat2(dirfd, rel, &how) })
		if err != unix.EAGAIN || try == 16 {
			return fd, err
		}
	}
}

// Root is an open tree root. It owns its descriptor; methods may be used by several goroutines until Close.
type Root struct {
	dir  *Dir
	name string
}

// OpenRoot opens the folder at an absolute path. Only this path may hold symlinks: the person chose it.
func OpenRoot(path string) (*Root, error) {
	fd, err := retryFd(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open folder", Path: path, Err: err}
	}
	return &Root{dir: &Dir{fd: fd}, name: path}, nil
}

// NewRoot takes a folder that is already open; name is its absolute path, for messages. The descriptor is duplicated.
func NewRoot(fd int, name string) (*Root, error) {
	own, err := retryFd(func() (int, error) {
		return unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open folder", Path: name, Err: err}
	}
	return &Root{dir: &Dir{fd: own}, name: name}, nil
}

// Name is the absolute path the root was opened with.
func (r *Root) Name() string { return r.name }

// Close releases the root.
func (r *Root) Close() error { return r.dir.Close() }

// Stat describes the root itself.
func (r *Root) Stat() (Info, error) { return r.dir.Stat() }

func (r *Root) fail(op, rel string, err error) error {
	var known *os.PathError
	if errors.As(err, &known) {
		return err
	}
	full := r.name
	if rel != "." {
		full += "/" + rel
	}
	if len(full) > unix.PathMax { // no message needs more, and a hostile tree can be this deep
		full = full[:200] + "…"
	}
	return &os.PathError{Op: op, Path: full, Err: err}
}

// open resolves rel in steps that fit the kernel's path limit.
func (r *Root) open(rel string, flags int) (int, error) {
	if err := CheckPath(rel); err != nil {
		return -1, err
	}
	at, owned := r.dir.fd, false
	for len(rel) > maxLookup {
		cut := strings.LastIndexByte(rel[:maxLookup], '/')
		if cut < 0 {
			cut = strings.IndexByte(rel, '/')
		}
		if cut < 0 {
			break
		}
		next, err := openBeneath(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY, 0)
		if owned {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, owned, rel = next, true, rel[cut+1:]
	}
	fd, err := openBeneath(at, rel, flags, 0)
	if owned {
		unix.Close(at)
	}
	return fd, err
}

// OpenDir opens a folder below the root.
func (r *Root) OpenDir(rel string) (*Dir, error) {
	fd, err := r.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil, r.fail("open folder", rel, err)
	}
	return &Dir{fd: fd}, nil
}

// parent opens the folder that holds rel.
func (r *Root) parent(rel string) (*Dir, string, error) {
	if err := CheckPath(rel); err != nil {
		return nil, "", err
	}
	if rel == "." {
		return nil, "", fmt.Errorf("the root itself: %w", ErrPath)
	}
	dir, base := split(rel)
	fd, err := r.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", err
	}
	return &Dir{fd: fd}, base, nil
}

// Lstat describes rel without following it.
func (r *Root) Lstat(rel string) (Info, error) {
	if rel == "." {
		return r.dir.Stat()
	}
	d, base, err := r.parent(rel)
	if err != nil {
		return Info{}, r.fail("lstat", rel, err)
	}
	defer d.Close()
	info, err := d.Lstat(base)
	if err != nil {
		return Info{}, r.fail("lstat", rel, err)
	}
	return info, nil
}

// Open opens a regular file for reading. A symlink, folder, fifo, socket or device is ErrKind.
func (r *Root) Open(rel string) (*os.File, Info, error) {
	d, base, err := r.parent(rel)
	if err != nil {
		return nil, Info{}, r.fail("open", rel, err)
	}
	defer d.Close()
	fd, info, err := d.openRegular(base)
	if err != nil {
		return nil, Info{}, r.fail("open", rel, err)
	}
	return os.NewFile(uintptr(fd), r.name+"/"+rel), info, nil
}

// ReadFile reads a regular file of at most max bytes; a longer one is ErrTooBig.
func (r *Root) ReadFile(rel string, max int64) ([]byte, Info, error) {
	f, info, err := r.Open(rel)
	if err != nil {
		return nil, Info{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, Info{}, r.fail("read", rel, err)
	}
	if int64(len(data)) > max {
		return nil, Info{}, r.fail("read", rel, fmt.Errorf("more than %d bytes: %w", max, ErrTooBig))
	}
	return data, info, nil
}

// Readlink returns the text of a symlink.
func (r *Root) Readlink(rel string) (string, error) {
	d, base, err := r.parent(rel)
	if err != nil {
		return "", r.fail("readlink", rel, err)
	}
	defer d.Close()
	target, err := d.Readlink(base)
	if err != nil {
		return "", r.fail("readlink", rel, err)
	}
	return target, nil
}

// ReadDir lists a folder of at most max names, sorted by bytes.
func (r *Root) ReadDir(rel string, max int) ([]Entry, error) {
	d, err := r.OpenDir(rel)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	list, err := d.Entries(max)
	if err != nil {
		return nil, r.fail("read folder", rel, err)
	}
	return list, nil
}
