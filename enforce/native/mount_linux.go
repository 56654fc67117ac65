package native

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// StepError is a step of the set-up that did not work, with the value it was done to.
type StepError struct {
	Step  string
	Value string
	Err   error
}

func (e *StepError) Error() string {
	if e.Value == "" {
		return e.Step + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s %q: %v", e.Step, e.Value, e.Err)
}

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

func stepError(name, value string, err error) error {
	if err == nil {
		return nil
	}
	return &StepError{Step: name, Value: value, Err: err}
}

// mountFlags are the attributes of one attached mount. nosuid is always set.
type mountFlags struct{ readOnly, device, exec bool }

func (f mountFlags) attributes() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID)
	if f.readOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if !f.device {
		attr |= unix.MOUNT_ATTR_NODEV
	}
	if !f.exec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	return attr
}

// legacy gives the same attributes for mount(2).
func (f mountFlags) legacy() uintptr {
	flags := uintptr(unix.MS_NOSUID)
	if f.readOnly {
		flags |= unix.MS_RDONLY
	}
	if !f.device {
		flags |= unix.MS_NODEV
	}
	if !f.exec {
		flags |= unix.MS_NOEXEC
	}
	return flags
}

// openBeneath opens a path below dir for use as a mount source or target. No component may be a
// symbolic link: the trees belong to whoever is attacked, and the path was resolved before.
func openBeneath(dir int, rel string, flags uint64) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(dir, rel, how)
		// EAGAIN: a rename somewhere on the system made the kernel unsure about ".."; openat2(2)
		// asks to try again.
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// attach clones the mount at src, sets its flags and puts it on the target.
func (b *builder) attach(src, target int, flags mountFlags) error {
	// open_tree and move_mount exist since Linux 5.2.
	mnt, err := unix.OpenTree(src, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(mnt)
	attr := &unix.MountAttr{Attr_set: flags.attributes(), Propagation: unix.MS_PRIVATE}
	err = unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
	legacy := errors.Is(err, unix.ENOSYS) // before Linux 5.12
	if err != nil && !legacy {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	if err := unix.MoveMount(mnt, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	if legacy {
		return b.remountTree(mnt, flags)
	}
	return nil
}

// remountTree sets flags on an attached mount and all mounts below it with mount(2), repeating
// until a pass finds nothing to change. The mounts below are found by mount id, not by path.
func (b *builder) remountTree(mnt int, flags mountFlags) error {
	if err := b.remount(mnt, flags); err != nil {
		return err
	}
	id, err := mountID(mnt)
	if err != nil {
		return err
	}
	for range 16 {
		changed, err := b.remountChildren(id, flags)
		if err != nil || !changed {
			return err
		}
	}
	return errors.New("mounts below kept changing")
}

func (b *builder) remountChildren(top uint64, flags mountFlags) (bool, error) {
	entries, err := b.mountInfo()
	if err != nil {
		return false, err
	}
	below := map[uint64]bool{top: true}
	changed := false
	for _, e := range entries { // parents come before children
		if !below[e.parent] {
			continue
		}
		below[e.id] = true
		if e.has(flags) {
			continue
		}
		fd, err := unix.Open(e.point, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return false, fmt.Errorf("open mount point %q: %w", e.point, err)
		}
		got, err := mountID(fd)
		if err == nil && got == e.id {
			err = b.remount(fd, flags)
			changed = true
		}
		unix.Close(fd)
		if err != nil {
			return false, err
		}
	}
	return changed, nil
}

// remount sets flags on the mount that fd is the root of. Flags that a mount has are kept: in a
// user namespace they are locked, and dropping one is EPERM (mount_namespaces(7)).
func (b *builder) remount(fd int, flags mountFlags) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("fstatfs: %w", err)
	}
	keep := []struct{ have, want uintptr }{
		{unix.ST_RDONLY, unix.MS_RDONLY}, {unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC}, {unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME},
	}
	all := flags.legacy() | unix.MS_REMOUNT | unix.MS_BIND
	for _, k := range keep {
		if uintptr(st.Flags)&k.have != 0 {
			all |= k.want
		}
	}
	// mount(2) takes a path only; the magic link names exactly this mount, whatever happens to
	// the names above it. The working folder is restored by the caller's absolute paths.
	if err := unix.Fchdir(b.procSelf); err != nil {
		return fmt.Errorf("fchdir to /proc/self: %w", err)
	}
	if err := unix.Mount("", "fd/"+strconv.Itoa(fd), "", all, ""); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	return nil
}

// mountID asks for the id of the mount that fd lies on (statx, Linux 5.8).
func mountID(fd int) (uint64, error) {
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &stx); err != nil {
		return 0, fmt.Errorf("statx: %w", err)
	}
	if stx.Mask&unix.STATX_MNT_ID == 0 {
		return 0, errors.New("statx gives no mount id; Linux 5.8 or newer is needed")
	}
	return stx.Mnt_id, nil
}

// mountEntry is one line of mountinfo (proc_pid_mountinfo(5)).
type mountEntry struct {
	id, parent uint64
	root       string // the folder of the file system that is mounted
	point      string
	fstype     string
	options    []string
}

func (e mountEntry) has(f mountFlags) bool {
	have := map[string]bool{}
	for _, o := range e.options {
		have[o] = true
	}
	return have["nosuid"] && (have["ro"] || !f.readOnly) && (have["nodev"] || f.device) && (have["noexec"] || f.exec)
}

func (b *builder) mountInfo() ([]mountEntry, error) {
	fd, err := unix.Openat(b.procSelf, "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open mountinfo: %w", err)
	}
	defer unix.Close(fd)
	var buf bytes.Buffer
	chunk := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, chunk)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read mountinfo: %w", err)
		}
		if n == 0 {
			return parseMountInfo(buf.String())
		}
		buf.Write(chunk[:n])
	}
}

// MountPoints lists the mount points of a mount table, for the supervisor's watch.
func MountPoints(mountInfo string) (map[string]bool, error) {
	entries, err := parseMountInfo(mountInfo)
	if err != nil {
		return nil, err
	}
	points := make(map[string]bool, len(entries))
	for _, e := range entries {
		points[e.point] = true
	}
	return points, nil
}

// FileSystems tells the type of the topmost mount of each mount point of a mount table.
func FileSystems(mountInfo string) (map[string]string, error) {
	entries, err := parseMountInfo(mountInfo)
	if err != nil {
		return nil, err
	}
	at := make(map[uint64]string, len(entries))
	for _, e := range entries {
		at[e.id] = e.point
	}
	below := map[uint64]bool{} // mounts with another one on top of them
	for _, e := range entries {
		below[e.parent] = below[e.parent] || at[e.parent] == e.point && e.parent != e.id
	}
	types := make(map[string]string, len(entries))
	for _, e := range entries {
		if !below[e.id] {
			types[e.point] = e.fstype
		}
	}
	return types, nil
}

func parseMountInfo(text string) ([]mountEntry, error) {
	var entries []mountEntry
	for line := range strings.Lines(text) {
		// The kernel escapes space, tab, newline and backslash only; a path may hold other white space.
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(fields) < 6 {
			return nil, fmt.Errorf("mountinfo line %q has %d fields", line, len(fields))
		}
		id, err1 := strconv.ParseUint(fields[0], 10, 64)
		parent, err2 := strconv.ParseUint(fields[1], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("mountinfo line %q: %w", line, err)
		}
		e := mountEntry{id: id, parent: parent, root: unescape(fields[3]), point: unescape(fields[4]), options: strings.Split(fields[5], ",")}
		// Optional fields end with a hyphen, which the type of the file system follows.
		if i := slices.Index(fields, "-"); i >= 6 && i+1 < len(fields) {
			e.fstype = fields[i+1]
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// unescape undoes the octal escapes of mountinfo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
