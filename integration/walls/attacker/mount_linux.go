package main

import (
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mounts try to take the covers off. Where the right to mount is missing everywhere, as for an unprivileged user, the
// control is the same with a user namespace around it.
func mounts() []attempt {
	ns := func(name string, flags int) attempt {
		return attempt{"unshare-" + name, func(*target) error { return unix.Unshare(flags) }}
	}
	env := func(t *target) string { return filepath.Join(t.Work, ".env") }
	return []attempt{
		ns("user", unix.CLONE_NEWUSER), ns("mount", unix.CLONE_NEWUSER|unix.CLONE_NEWNS), ns("net", unix.CLONE_NEWUSER|unix.CLONE_NEWNET),
		{"clone-user", func(*target) error { return cloneNamespace() }},
		{"umount-mask", private(func(t *target) error { return unix.Unmount(env(t), unix.MNT_DETACH) })},
		{"umount-proc", private(func(*target) error { return unix.Unmount("/proc", unix.MNT_DETACH) })},
		{"remount-root", private(func(*target) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") })},
		{"mount-tmpfs", private(func(*target) error { return unix.Mount("planted", "/tmp", "tmpfs", 0, "size=4k") })},
		{"mount-proc", private(func(*target) error { return unix.Mount("proc", "/tmp", "proc", 0, "") })},
		{"bind-work", private(func(t *target) error { return unix.Mount(t.Work, "/tmp", "", unix.MS_BIND|unix.MS_REC, "") })},
		{"open-tree", private(func(t *target) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, t.Work, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})},
		{"mount-setattr", private(func(*target) error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		})},
		{"chroot", private(func(t *target) error { return unix.Chroot(t.Work) })},
		{"device-node", func(t *target) error {
			return first(
				func() error {
					return unix.Mknod(filepath.Join(t.Scratch, "disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0)))
				},
				func() error {
					return unix.Mknod(filepath.Join(t.Scratch, "mem"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))
				})
		}},
		{"set-user-id", func(t *target) error {
			file := filepath.Join(t.Scratch, "payload")
			if err := create(file); err != nil {
				return err
			}
			return unix.Chmod(file, 0o4755)
		}},
		{"set-user-id-create", func(t *target) error {
			fd, err := unix.Open(filepath.Join(t.Scratch, "payload"), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o6755)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
	}
}

// private gives the thread a mount namespace of its own first, where that is possible: outside a cell the attempt
// then works and harms nobody. The thread ends with the attempt.
func private(f func(*target) error) func(*target) error {
	return func(t *target) error {
		if unix.Unshare(unix.CLONE_NEWNS) == nil {
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
		}
		return f(t)
	}
}

// cloneNamespace makes a child in a new user namespace and lets it end at once.
func cloneNamespace() error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	var status unix.WaitStatus
	_, err := unix.Wait4(int(pid), &status, 0, nil)
	return err
}

// bad lies in the kernel's half of the address space: a call that gets as far as its argument answers EFAULT and
// does nothing. So the control of a call that would change the machine shows that it is reached, and no more.
const bad = ^uintptr(0xfff)

const none = ^uintptr(0)

// kernelCalls are refused by the filter whatever their arguments.
func kernelCalls() []attempt {
	at := func(name string, nr uintptr, args ...uintptr) attempt {
		return attempt{"call-" + name, func(*target) error { return call(nr, args...) }}
	}
	text := func(s string) uintptr { b := append([]byte(s), 0); return uintptr(unsafe.Pointer(&b[0])) }
	return append([]attempt{
		at("clone3", unix.SYS_CLONE3, bad, 88),
		at("setns", unix.SYS_SETNS, none, 0),
		at("mount", unix.SYS_MOUNT, bad, bad, bad),
		at("umount", unix.SYS_UMOUNT2, bad, 0),
		at("pivot-root", unix.SYS_PIVOT_ROOT, bad, bad),
		at("move-mount", unix.SYS_MOVE_MOUNT, none, bad, none, bad, 0),
		at("fsopen", unix.SYS_FSOPEN, bad, 0),
		at("fsmount", unix.SYS_FSMOUNT, none, 0, 0),
		at("fsconfig", unix.SYS_FSCONFIG, none, 0, 0, 0, 0),
		at("fspick", unix.SYS_FSPICK, none, bad, 0),
		at("open-by-handle", unix.SYS_OPEN_BY_HANDLE_AT, none, bad, 0),
		at("bpf", unix.SYS_BPF, 0xffff, bad, 8),
		at("perf-event", unix.SYS_PERF_EVENT_OPEN, bad, 0, none, none, 0),
		at("io-uring-setup", unix.SYS_IO_URING_SETUP, 1, bad),
		at("io-uring-enter", unix.SYS_IO_URING_ENTER, none, 0, 0, 0, 0, 0),
		at("userfaultfd", unix.SYS_USERFAULTFD, 0x40000001),
		at("keyring-id", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 1), // -3: the session's
		at("add-key", unix.SYS_ADD_KEY, bad, bad, 0, 0, 0),
		at("request-key", unix.SYS_REQUEST_KEY, bad, bad, 0, 0),
		at("process-madvise", unix.SYS_PROCESS_MADVISE, none, bad, 1, 0, 0),
		at("pidfd-getfd", unix.SYS_PIDFD_GETFD, none, 0, 0),
		at("kcmp", unix.SYS_KCMP, 0x7fffffff, 0x7fffffff, 0, 0, 0),
		at("clock-settime", unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, bad),
		at("settimeofday", unix.SYS_SETTIMEOFDAY, bad, 0),
		at("adjtimex", unix.SYS_ADJTIMEX, bad),
		at("sethostname", unix.SYS_SETHOSTNAME, bad, 4),
		at("setdomainname", unix.SYS_SETDOMAINNAME, bad, 4),
		at("reboot", unix.SYS_REBOOT, 0, 0, 0, 0),
		at("kexec", unix.SYS_KEXEC_LOAD, 0, 0x7fffffff, bad, 0x40000000),
		at("init-module", unix.SYS_INIT_MODULE, bad, 0, bad),
		at("delete-module", unix.SYS_DELETE_MODULE, bad, 0),
		at("swapon", unix.SYS_SWAPON, bad, 0x40000000),
		at("swapoff", unix.SYS_SWAPOFF, bad),
		at("acct", unix.SYS_ACCT, bad),
		at("quotactl", unix.SYS_QUOTACTL, 0xffffffff, bad, 0, 0),
		at("syslog", unix.SYS_SYSLOG, 10, 0, 0), // the size of the buffer
		at("listener", unix.SYS_SECCOMP, 1, 1<<3, bad),
		at("personality", unix.SYS_PERSONALITY, 0x0400000), // READ_IMPLIES_EXEC, of this thread only
		at("fanotify", unix.SYS_FANOTIFY_INIT, 0x40000000, 0),
		at("tiocsti", unix.SYS_IOCTL, none, unix.TIOCSTI, 0),
		at("tiocsti-high", unix.SYS_IOCTL, none, unix.TIOCSTI|1<<32, 0),
		at("tioclinux", unix.SYS_IOCTL, none, 0x541c, 0),
		at("line-discipline", unix.SYS_IOCTL, none, 0x5423, 0),
	}, attempt{"call-add-user-key", func(*target) error {
		// A key of this thread's own keyring: gone with the thread.
		return call(unix.SYS_ADD_KEY, text("user"), text("coworker-walls-test"), text("v"), 1, ^uintptr(0))
	}})
}
