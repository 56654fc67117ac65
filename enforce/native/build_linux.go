package native

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
)

// builder makes the root of one session. It runs in the keeper, which has the capabilities of
// the session's own user namespace and no other.
type builder struct {
	spec     enforce.Spec
	root     int             // the new root, O_PATH
	procSelf int             // /proc/self of the host, O_PATH: works after the pivot too
	own      map[uint64]bool // ids of mounts on which coworker may make folders and files
	notes    []string
	maskFile int // O_PATH to an unreadable file and folder
	maskDir  int
}

const (
	base       = "/tmp"         // the new root is mounted here until the pivot; sources are opened before
	hostProc   = "/.proc"       // the host's proc, until the cell has mounted its own
	private    = "/.private"    // the one tmpfs behind all private folders, so that its size bounds them together
	maskFolder = "/.unreadable" // holds what is bound over secrets
)

// Root is the built root of a session, held by the keeper until the session ends.
type Root struct {
	b     *builder
	Notes []string // what could not be shared, for the report
}

// Build makes the root of a session and enters it. It must run in fresh user, mount, ipc, uts
// and net namespaces; see Start. On error the process must exit.
func Build(s enforce.Spec) (*Root, error) {
	if err := checkSpec(s); err != nil {
		return nil, &StepError{Step: "check spec", Err: err}
	}
	b := &builder{spec: s, own: map[uint64]bool{}}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	sources, err := b.openSources(plan(s))
	if err != nil {
		return nil, err
	}
	defer closeSources(sources)
	host, err := b.cloneHost()
	if err != nil {
		return nil, err
	}
	if err := b.mountBase(); err != nil {
		return nil, err
	}
	for i := range sources {
		if err := b.run(&sources[i]); err != nil {
			return nil, err
		}
	}
	if err := b.showHost(host); err != nil {
		return nil, err
	}
	if err := unix.Unmount(base+private, unix.MNT_DETACH); err != nil {
		return nil, stepError("detach", private, err)
	}
	if err := unix.Rmdir(base + private); err != nil {
		return nil, stepError("rmdir", private, err)
	}
	if err := b.enter(); err != nil {
		return nil, err
	}
	return &Root{b: b, Notes: b.notes}, nil
}

// cloneHost is for test builds that leave out the wall of reads: the host's root, without the new one.
func (b *builder) cloneHost() (int, error) {
	if !b.off(enforce.FSRead) {
		return -1, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	return fd, stepError("clone", "/", err)
}

// showHost attaches what cloneHost made, and closes it.
func (b *builder) showHost(host int) error {
	if !b.off(enforce.FSRead) {
		return nil
	}
	defer unix.Close(host)
	target, err := b.mountPoint("/host", false)
	if err != nil {
		return stepError("make mount point", "/host", err)
	}
	defer unix.Close(target)
	return stepError("move", "/host", unix.MoveMount(host, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// prepare cuts mount propagation, so that nothing done here reaches the host, and keeps
// /proc/self, which the new root will not have.
func (b *builder) prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return stepError("make mounts slaves", "/", err)
	}
	fd, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return stepError("open", "/proc/self", err)
	}
	b.procSelf = fd
	return nil
}

// source is a step with its host path opened before the new root hides it.
type source struct {
	step
	fd    int // -1 if the step has no source
	upper int // of an overlay: the private layer and the work folder, else -1
	work  int
	link  string
	file  bool
	skip  bool
}

func (b *builder) openSources(steps []step) ([]source, error) {
	sources := make([]source, 0, len(steps))
	for _, st := range steps {
		src := source{step: st, fd: -1, upper: -1, work: -1}
		var err error
		switch st.op {
		case opBind:
			err = src.openBind(b.spec.HomeStore)
		case opOverlay:
			err = src.openLayers()
		case opTree:
			t := b.spec.Trees[st.tree]
			if err = src.openTree(t); err == nil && b.staged(t) {
				err = src.openStage(t.Stage)
			}
		}
		sources = append(sources, src)
		if err != nil {
			closeSources(sources)
			return nil, stepError("open", st.source, err)
		}
	}
	return sources, nil
}

// open opens a path of the host's system. A symbolic link is remembered as a link, so that a
// merged /usr looks the same inside.
func (s *source) open() error {
	var st unix.Stat_t
	err := unix.Lstat(s.source, &st)
	if s.optional && (err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EACCES) {
		s.skip = true
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return s.openLink()
	}
	s.file = st.Mode&unix.S_IFMT != unix.S_IFDIR
	s.fd, err = unix.Open(s.source, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return err
}

// openLink handles a source that is a symbolic link. Links within the system (/bin to usr/bin)
// stay links. Files of /etc may point out of it (resolv.conf, alternatives, certificates of
// Nix): their target is attached in place of the link if the target itself would be missing.
func (s *source) openLink() error {
	text, err := os.Readlink(s.source)
	if err != nil {
		return err
	}
	resolved := text
	if !path.IsAbs(text) {
		resolved = path.Join(path.Dir(s.source), text)
	}
	if visibleSystem(resolved) {
		s.link = text
		return nil
	}
	fd, err := unix.Open(s.source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		s.skip = s.optional
		if s.skip {
			return nil
		}
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	s.fd, s.file = fd, st.Mode&unix.S_IFMT != unix.S_IFDIR
	return nil
}

func visibleSystem(p string) bool {
	for _, dir := range systemFolders {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

// openTree opens a tree of the Spec by its canonical path, without following any link, and
// compares it with what the supervisor saw. A difference means that somebody swapped the folder
// between the check and the mount.
func (s *source) openTree(t enforce.Tree) error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, strings.TrimPrefix(t.Path, "/"), 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if st.Dev != t.Device || st.Ino != t.Inode {
		unix.Close(fd)
		return fmt.Errorf("it is another file now (device %d inode %d, was device %d inode %d)", st.Dev, st.Ino, t.Device, t.Inode)
	}
	s.fd, s.file = fd, st.Mode&unix.S_IFMT != unix.S_IFDIR
	return nil
}

func (s *source) openBind(store string) error {
	if s.stored {
		return s.openStored(store)
	}
	return s.open()
}

// openStored opens a folder of the private home's store. Sessions write there, also at this moment:
// one of them may put a link where the supervisor has just seen a folder.
func (s *source) openStored(store string) error {
	top, err := unix.Open(store, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	s.fd, err = openBeneath(top, s.source, unix.O_DIRECTORY)
	return err
}

// openLayers opens the three folders of an overlay. The private ones were written from inside
// earlier sessions: no link on the way is followed.
func (s *source) openLayers() error {
	if err := s.open(); err != nil || s.skip {
		return err
	}
	if s.link != "" || s.file {
		s.skip = true // a cache that is no folder is no cache
		return nil
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if s.upper, err = openBeneath(root, strings.TrimPrefix(s.data, "/")+"/upper", unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("private layer %q: %w", s.data, err)
	}
	if s.work, err = openBeneath(root, strings.TrimPrefix(s.data, "/")+"/work", unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("work folder of %q: %w", s.data, err)
	}
	return nil
}

func closeSources(sources []source) {
	for _, s := range sources {
		for _, fd := range []int{s.fd, s.upper, s.work} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
}

// mountBase mounts the tmpfs that becomes the root and the host's proc, which the kernel wants
// to see before it lets the cell mount its own (mount_too_revealing in fs/namespace.c), and
// through which the cell's program is started.
func (b *builder) mountBase() error {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return stepError("open", "/proc", err)
	}
	defer unix.Close(proc)
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return stepError("mount tmpfs on", base, err)
	}
	b.root, err = unix.Open(base, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return stepError("open", base, err)
	}
	if err := b.ownMount(b.root); err != nil {
		return err
	}
	target, err := b.mountPoint(hostProc, false)
	if err != nil {
		return stepError("make mount point", hostProc, err)
	}
	defer unix.Close(target)
	if err := b.attach(proc, target, mountFlags{exec: true}); err != nil {
		return stepError("bind host proc on", hostProc, err)
	}
	if err := b.mountPrivate(); err != nil {
		return err
	}
	return b.makeMasks()
}

// mountPrivate mounts the tmpfs of which /tmp, /run, the home and their kin show one folder each.
func (b *builder) mountPrivate() error {
	fd, err := b.mountPoint(private, false)
	if err != nil {
		return stepError("make mount point", private, err)
	}
	unix.Close(fd)
	options := fmt.Sprintf("mode=0711,size=%d,nr_inodes=1048576", max(b.spec.Limits.Tmp, 1<<20))
	if err := unix.Mount("tmpfs", base+private, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return stepError("mount tmpfs on", private, err)
	}
	return b.ownTop(private)
}

// makeMasks makes the file and the folder that are bound over secrets. Mode 000 keeps out even
// uid 0, which has no capability inside.
func (b *builder) makeMasks() error {
	dir := base + maskFolder
	if err := errors.Join(unix.Mkdir(dir, 0o755), unix.Mkdir(dir+"/folder", 0)); err != nil {
		return stepError("mkdir", maskFolder, err)
	}
	fd, err := unix.Open(dir+"/file", unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_WRONLY, 0)
	if err != nil {
		return stepError("create", maskFolder+"/file", err)
	}
	unix.Close(fd)
	if b.maskFile, err = unix.Open(dir+"/file", unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err != nil {
		return stepError("open", maskFolder+"/file", err)
	}
	b.maskDir, err = unix.Open(dir+"/folder", unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return stepError("open", maskFolder+"/folder", err)
}

func (b *builder) ownMount(fd int) error {
	id, err := mountID(fd)
	if err != nil {
		return stepError("mount id", "", err)
	}
	b.own[id] = true
	return nil
}

// enter makes the new root the root of this process and lets go of the old one.
func (b *builder) enter() error {
	if err := unix.Fchdir(b.root); err != nil {
		return stepError("fchdir to the new root", "", err)
	}
	// pivot_root(".", ".") stacks the old root on the new one; the detach then removes it
	// (pivot_root(2), "pivot_root(".", ".")").
	if err := unix.PivotRoot(".", "."); err != nil {
		return stepError("pivot_root", "", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return stepError("detach the old root", "", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return stepError("chdir", "/", err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return stepError("open", "/", err)
	}
	unix.Close(b.root)
	b.root = root
	return nil
}

func (b *builder) off(w enforce.Wall) bool { return enforcetest.Off(b.spec, w) }
