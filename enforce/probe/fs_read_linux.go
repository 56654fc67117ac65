package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

const up = "../../../../../../../../../../../../../../../.."

func fsRead(s Setup) []attempt {
	read := func(name, file string) attempt {
		return attempt{name: name, wall: enforce.FSRead, run: func(b *battery) result { return b.open(file, unix.O_RDONLY, b.hidden()) }}
	}
	state := s.Targets.StateFile
	all := []attempt{
		read("state-file", state),
		read("state-folder", path.Dir(state)),
		read("dotdot", up+state),
		read("proc-self-root", "/proc/self/root/"+up+state),
		read("proc-self-cwd", "/proc/self/cwd/"+up+state),
		read("proc-1-root", "/proc/1/root"+state),
		{name: "system-secrets", wall: enforce.FSRead, run: readSystemSecrets},
		{name: "home-secrets", wall: enforce.FSRead, run: readHomeSecrets},
		{name: "kernel-memory", wall: enforce.FSRead, run: readKernelMemory},
		{name: "descriptors", wall: enforce.FSRead, run: inheritedDescriptors},
		// Landlock has no right for metadata and sees no O_PATH, so bare does not promise these.
		{name: "state-file-metadata", wall: enforce.FSRead, only: enforce.Native, run: statStateFile},
		{name: "state-file-handle", wall: enforce.FSRead, only: enforce.Native,
			run: func(b *battery) result { return b.open(state, unix.O_PATH, b.hidden()) }},
		{name: "host-proc", wall: enforce.FSRead, only: enforce.Native, run: leftoverProc},
		{name: "devices", wall: enforce.FSRead, only: enforce.Native, run: foreignDevices},
		{name: "mounts", wall: enforce.FSRead, only: enforce.Native, run: foreignMounts},
		{name: "mount-namespace", wall: enforce.FSRead, only: enforce.Native,
			run: func(b *battery) result { return judgeOwn("/proc/self/ns/mnt", b.Targets.HostMntNS) }},
	}
	if !s.noScratch() {
		all = append(all, attempt{name: "symlink", wall: enforce.FSRead, run: readBySymlink})
	}
	return all
}

// open makes one attempt to open a file. O_NONBLOCK keeps a FIFO from stopping the battery.
func (b *battery) open(file string, flags int, stops errnos) result {
	if file == "" || file == "." {
		return unclear("the setup names no target")
	}
	fd, err := unix.Open(file, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return judge(err, stops, nil).at(file)
}

// judgeOwn compares a namespace of this process with the supervisor's.
func judgeOwn(link, host string) result {
	own, err := os.Readlink(link)
	switch {
	case err != nil:
		return unclear(err.Error())
	case host == "":
		return unclear("the supervisor's namespace is not known")
	case own == host:
		return leaked(own + " is the supervisor's")
	default:
		return stopped(own)
	}
}

func readBySymlink(b *battery) result {
	if b.Targets.StateFile == "" {
		return unclear("the setup names no target")
	}
	link, err := scratch(b.Targets.Scratch).throughLink(b.Targets.StateFile)
	if err != nil {
		return unclear(err.Error())
	}
	return b.open(link, unix.O_RDONLY, b.hidden())
}

// readEach opens files whose absence is the wall, in both backends. It skips what the person
// listed and what coworker itself put into the private home.
func (b *battery) readEach(files ...string) result {
	stops := errnos{unix.ENOENT, unix.ENOTDIR, unix.EACCES}
	results := make([]result, 0, len(files))
	for _, f := range files {
		if !b.listed(f) {
			results = append(results, b.open(f, unix.O_RDONLY, stops))
		}
	}
	if len(results) == 0 {
		return stopped("every one of them was listed by name")
	}
	return worst(results...)
}

func (b *battery) listed(file string) bool {
	for _, t := range b.Spec.Trees {
		if under(file, t.Path) {
			return true
		}
	}
	for _, f := range b.Spec.HomeFiles {
		if file == path.Join(b.Spec.Identity.Home, f.Path) {
			return true
		}
	}
	for _, f := range b.Spec.Etc {
		if file == path.Join("/etc", f.Path) {
			return true
		}
	}
	return false
}

func readSystemSecrets(b *battery) result {
	return b.readEach("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key",
		"/etc/ssl/private", "/root/.ssh/id_rsa", "/root/.ssh/id_ed25519", "/var/lib/docker", "/etc/coworker")
}

func readHomeSecrets(b *battery) result {
	home := b.Spec.Identity.Home
	if home == "" {
		return unclear("the spec names no home")
	}
	var files []string
	for _, name := range []string{".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/id_ecdsa", ".ssh/authorized_keys",
		".gnupg", ".aws/credentials", ".netrc", ".git-credentials", ".docker/config.json", ".kube/config",
		".config/gcloud", ".bash_history", ".local/state/coworker", ".config/coworker"} {
		files = append(files, path.Join(home, name))
	}
	return b.readEach(files...)
}

func readKernelMemory(b *battery) result {
	stops := errnos{unix.ENOENT, unix.EACCES, unix.EPERM, unix.ENXIO}
	var results []result
	for _, f := range []string{"/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/kmsg"} {
		results = append(results, b.open(f, unix.O_RDONLY, stops))
	}
	return worst(results...)
}

func statStateFile(b *battery) result {
	if b.Targets.StateFile == "" {
		return unclear("the setup names no target")
	}
	var st unix.Stat_t
	// EACCES: the folder above is masked, as where a person named their whole home as workspace.
	return judge(unix.Lstat(b.Targets.StateFile, &st), errnos{unix.ENOENT, unix.EACCES}, nil).at(b.Targets.StateFile)
}

// leftoverProc looks for what the set-up of a root may leave behind: the old root after
// pivot_root, and a proc of the host.
func leftoverProc(b *battery) result {
	var results []result
	for _, dir := range []string{"/.proc/1/root", "/.proc/1/root" + b.Targets.StateFile, "/.oldroot", "/.old_root", "/oldroot", "/.put_old"} {
		results = append(results, b.open(dir, unix.O_RDONLY, errnos{unix.ENOENT, unix.ENOTDIR, unix.EACCES}))
	}
	return worst(results...)
}

var ownDevices = map[string]bool{
	"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true, "pts": true,
	"ptmx": true, "shm": true, "fd": true, "stdin": true, "stdout": true, "stderr": true, "core": true, "mqueue": true,
}

// foreignDevices only lists: opening some devices has effects (a watchdog starts to count).
func foreignDevices(*battery) result {
	names, err := list("/dev")
	if err != nil {
		return unclear(err.Error())
	}
	for _, name := range names {
		if !ownDevices[name] {
			return leaked("/dev/" + name + " is visible")
		}
	}
	return stopped(fmt.Sprintf("%d known nodes", len(names)))
}

// maxNames bounds every listing of a folder.
const maxNames = 1 << 14

func list(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxNames)
	if errors.Is(err, io.EOF) { // an empty folder
		err = nil
	}
	return names, err
}

// inheritedDescriptors looks at every open descriptor. A folder of the host is a way round the
// root (openat with ".."), an inet socket is one round the network namespace, a terminal can be
// fed with input (TIOCSTI).
func inheritedDescriptors(*battery) result {
	names, err := list("/proc/self/fd")
	if err != nil {
		return unclear(err.Error())
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return unclear("descriptor " + name)
		}
		if what, err := describe(fd); errors.Is(err, unix.EBADF) {
			continue // the descriptor of the listing itself
		} else if err != nil {
			return unclear(fmt.Sprintf("descriptor %d: %v", fd, err))
		} else if what != "" {
			return leaked(fmt.Sprintf("descriptor %d is %s", fd, what))
		}
	}
	return stopped(fmt.Sprintf("%d descriptors", len(names)))
}

// describe says what is wrong with a descriptor, or nothing for pipes, event descriptors,
// sockets of the family UNIX and the harmless memory devices.
func describe(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a folder", nil
	case unix.S_IFBLK:
		return "a block device", nil
	case unix.S_IFCHR:
		if unix.Major(uint64(st.Rdev)) != 1 { // 1: null, zero, full, random, urandom
			return "a terminal or another device", nil
		}
		if m := unix.Minor(uint64(st.Rdev)); m < 3 || m == 4 || m == 11 { // mem, kmem, port, kmsg
			return "kernel memory or its log", nil
		}
	case unix.S_IFREG, unix.S_IFLNK, 0: // 0: an anonymous inode
		return describeFile(fd)
	case unix.S_IFSOCK:
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || domain != unix.AF_UNIX {
			return fmt.Sprintf("a socket of family %d", domain), err
		}
	}
	return "", nil
}

// ownEvents are anonymous inodes that reach nothing. Others do: a pidfd signals, a namespace is
// entered, a seccomp listener decides.
var ownEvents = map[string]bool{
	"anon_inode:[eventpoll]": true, "anon_inode:[eventfd]": true, "anon_inode:[timerfd]": true, "anon_inode:[signalfd]": true,
}

// describeFile accepts the descriptors of event loops, sealed memory, and the Go run time's own
// view of the cgroup limits (Go 1.25 keeps /sys/fs/cgroup files open to follow cpu.max).
func describeFile(fd int) (string, error) {
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(target, "/memfd:") || ownEvents[target] {
		return "", nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY && isCPULimit(path.Base(target)) {
		return "", nil
	}
	return "the file " + target, err
}

func isCPULimit(name string) bool {
	return name == "cpu.max" || name == "cpu.cfs_quota_us" || name == "cpu.cfs_period_us"
}
