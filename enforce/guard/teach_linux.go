package guard

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// settings is struct settings of the programs.
type settings struct {
	Levels  [4]uint32
	Teacher uint32
	_       uint32
}

// lesson is struct lesson of the programs: how the kernel numbers a file.
type lesson struct {
	Inode uint64
	Ino   uint64
	Dev   uint32
	Seen  uint32
}

// school asks the kernel about files while it is open: a program on the hook of stat answers the one thread that asks.
// Device numbers of stat are not those of the kernel on some file systems. The program stays on its hook between two
// schools, because before Linux 5.13 one can be put there only once.
type school struct{ guard *Guard }

// openSchool needs g.mu. The caller's goroutine keeps its thread until close.
func (g *Guard) openSchool() *school {
	runtime.LockOSThread()
	return &school{guard: g}
}

func (s *school) close() error {
	runtime.UnlockOSThread()
	return s.guard.set(0)
}

// set writes the settings: the levels, and who is taught.
func (g *Guard) set(teacher uint32) error {
	s := settings{Teacher: teacher}
	copy(s.Levels[:], g.levels)
	return g.objects.Setting.Put(uint32(0), s)
}

// ask is about the file that a descriptor leads to, or with a name the one below it; links are not followed.
func (s *school) ask(dir int, name string) (lesson, error) {
	var l lesson
	err := errors.Join(s.guard.objects.Taught.Put(uint32(0), l), s.guard.set(uint32(unix.Gettid())))
	if err != nil {
		return l, err
	}
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS, &st); err != nil {
		return l, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if err := s.guard.objects.Taught.Lookup(uint32(0), &l); err != nil {
		return l, err
	}
	if l.Seen == 0 {
		return l, errNotCalled
	}
	return l, nil
}

var errNotCalled = fmt.Errorf("%w: the kernel does not call the programs on its hooks", ebpf.ErrNotSupported)

// prove shows that the kernel calls the programs: attaching works also where bpf is not among its security modules.
func (g *Guard) prove() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.openSchool()
	_, err := s.ask(unix.AT_FDCWD, "/")
	return errors.Join(err, s.close())
}
