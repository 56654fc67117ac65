// Package workfs reads and changes a hostile tree from outside the wall.
//
// Everything is relative to a root directory descriptor and is resolved by openat2(2) (Linux 5.6) with RESOLVE_BENEATH,
// RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS, so no symlink, no ".." and no /proc link is ever followed, whatever the
// tree's owner does meanwhile. Files are opened non-blocking and only when they are regular; sizes, entries and depths are
// bounded. Names are bytes: a newline, invalid UTF-8 or a leading dash means nothing here.
//
// Any package outside the wall that must look at a workspace imports it; packages behind the wall (runtime/cell) must not,
// the kernel confines those. What must not be added: a function that takes an absolute path other than OpenRoot, a follow
// option, or knowledge about what a name means (enforce/protect, enforce/hide, platform/gitconfig).
package workfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

var (
	// ErrUnsupported is returned by every function on systems without openat2.
	ErrUnsupported = errors.New("workspace access needs Linux 5.6 or later")
	// ErrPath is returned for a path that is empty, absolute, not clean, or holds NUL or "..".
	ErrPath = errors.New("not a clean relative path")
	// ErrTooBig is returned when a bound (bytes, entries, depth) is exceeded.
	ErrTooBig = errors.New("over the limit")
	// ErrKind is returned when a path exists but is not of the kind that was asked for.
	ErrKind = errors.New("not the expected kind of file")
	// ErrCrossDevice is returned when a rename would cross file systems; the caller copies instead.
	ErrCrossDevice = errors.New("on another file system")
)

// Kind is the type of a directory entry.
type Kind uint8

// The kinds of a directory entry. Unknown appears only where the file system reports no type.
const (
	Unknown Kind = iota
	Regular
	Directory
	Symlink
	Socket
	Fifo
	Device
)

var kindNames = [...]string{"unknown", "file", "folder", "symlink", "socket", "fifo", "device"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Info is what lstat says about one entry.
type Info struct {
	Kind     Kind
	Mode     fs.FileMode // permission bits with setuid, setgid and sticky, as os.FileMode has them
	Size     int64
	Nlink    uint64
	UID, GID uint32
	Dev, Ino uint64
	Rdev     uint64 // of a device; zero with Kind Device is an overlay's mark for a deleted name
	ModTime  time.Time
	Change   time.Time // ctime; a program cannot set it, so it tells a reused inode number from the same file
}

// Whiteout reports the mark that an overlay's upper folder holds for a name that was deleted: a device 0/0.
func (i Info) Whiteout() bool { return i.Kind == Device && i.Rdev == 0 }

// Same reports whether both describe one inode.
func (i Info) Same(o Info) bool { return i.Dev == o.Dev && i.Ino == o.Ino }

// Entry is one name in a folder.
type Entry struct {
	Name string
	Kind Kind
	Ino  uint64
}

// Bounds limits an operation over a whole subtree.
type Bounds struct {
	Entries int   // names visited
	Depth   int   // folders below the start
	Bytes   int64 // content copied or hashed
}

// DefaultBounds is what one protected folder can reasonably hold. A depth costs one descriptor.
var DefaultBounds = Bounds{Entries: 100_000, Depth: 512, Bytes: 256 << 20}

// CheckPath refuses what openat2 would refuse or resolve in a surprising way. "." is the root itself.
func CheckPath(rel string) error {
	if rel == "." {
		return nil
	}
	if rel == "" || rel[0] == '/' || strings.IndexByte(rel, 0) >= 0 {
		return fmt.Errorf("path %q: %w", rel, ErrPath)
	}
	for rest := rel; ; {
		part, tail, more := strings.Cut(rest, "/")
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("path %q: %w", rel, ErrPath)
		}
		if !more {
			return nil
		}
		rest = tail
	}
}

// checkName refuses anything but one path component.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("name %q: %w", name, ErrPath)
	}
	return nil
}

// split cuts a checked path into its folder and its last name.
func split(rel string) (dir, base string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return ".", rel
}

// Join puts a name below a folder, where "." is the root.
func Join(dir, name string) string {
	if dir == "." || dir == "" {
		return name
	}
	return dir + "/" + name
}
