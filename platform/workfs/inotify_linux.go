package workfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNoMarks is returned when the user's inotify instances (128 by default) or marks (fs.inotify.max_user_watches) are used up.
var ErrNoMarks = errors.New("no inotify instance or mark left for this user")

// MarkEvent is one notification. Name is empty when the folder itself is meant.
type MarkEvent struct {
	Mark     int32
	Name     string
	Overflow bool // events were lost: look at everything
	Ended    bool // the mark is gone (folder removed or unmounted)
	Moved    bool // the folder itself was renamed
}

// Marks is one inotify instance. Add may be used by several goroutines; Read by one.
type Marks struct {
	fd  int
	buf []byte
}

// NewMarks makes an instance.
func NewMarks() (*Marks, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE || err == unix.ENFILE {
		return nil, fmt.Errorf("inotify_init1: %w (%w)", ErrNoMarks, err)
	}
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &Marks{fd: fd, buf: make([]byte, 64<<10)}, nil
}

// Close drops every mark.
func (m *Marks) Close() error { return unix.Close(m.fd) }

// Add marks an open folder for new names. The mark goes to the inode that was opened, through /proc/self/fd, so a symlink
// put in its place meanwhile is not followed; IN_DONT_FOLLOW would stop at the /proc link itself.
func (m *Marks) Add(d *Dir) (int32, error) {
	const mask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ONLYDIR
	wd, err := unix.InotifyAddWatch(m.fd, "/proc/self/fd/"+strconv.Itoa(d.fd), mask)
	if err == unix.ENOSPC {
		return 0, fmt.Errorf("inotify_add_watch: %w (%w)", ErrNoMarks, err)
	}
	if err != nil {
		return 0, fmt.Errorf("inotify_add_watch: %w", err)
	}
	return int32(wd), nil
}

// Drop removes one mark. A mark that is already gone is no error.
func (m *Marks) Drop(mark int32) { unix.InotifyRmWatch(m.fd, uint32(mark)) }

// Read calls f for every pending event and returns without waiting. It reads at most as many buffers as a full kernel
// queue can fill, so a writer that is as fast as the reader cannot keep it here.
func (m *Marks) Read(f func(MarkEvent)) error {
	const rounds = 256
	for range rounds {
		n, err := retryFd(func() (int, error) { return unix.Read(m.fd, m.buf) })
		if err == unix.EAGAIN || (err == nil && n == 0) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read inotify events: %w", err)
		}
		if err := eachEvent(m.buf[:n], f); err != nil {
			return err
		}
	}
	f(MarkEvent{Overflow: true})
	return nil
}

// eachEvent walks struct inotify_event: wd s32, mask u32, cookie u32, len u32, name padded with NULs.
func eachEvent(buf []byte, f func(MarkEvent)) error {
	for len(buf) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(buf[12:]))
		if size > len(buf)-unix.SizeofInotifyEvent {
			return fmt.Errorf("inotify event with a name of %d bytes: %w", size, unix.EIO)
		}
		mask := binary.NativeEndian.Uint32(buf[4:])
		name := buf[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		f(MarkEvent{
			Mark:     int32(binary.NativeEndian.Uint32(buf)),
			Name:     string(name),
			Overflow: mask&unix.IN_Q_OVERFLOW != 0,
			Ended:    mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0,
			Moved:    mask&unix.IN_MOVE_SELF != 0,
		})
		buf = buf[unix.SizeofInotifyEvent+size:]
	}
	return nil
}
