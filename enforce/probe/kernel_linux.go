package probe

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// badPointer lies in the kernel's half, so access_ok refuses it: a call that gets as far as
// reading its argument answers EFAULT and does nothing. Every dangerous call below is made with
// one, or with a flag, number or descriptor that does not exist.
const badPointer = ^uintptr(0xfff)

const (
	noFD   = ^uintptr(0)         // -1
	noPid  = uintptr(0x7fffffff) // above PID_MAX_LIMIT (2^22)
	cwdFD  = ^uintptr(99)        // AT_FDCWD
	noFlag = uintptr(0x40000000)
)

// call is one system call that a cell must not be able to make. Every call of this table fails
// whoever makes it: the errno tells whether the filter or the kernel proper refused it. Where the
// kernel asks for a capability before it looks at arguments, EPERM means either of them.
type call struct {
	name  string
	nr    uintptr
	args  [6]uintptr
	past  errnos // answers of the kernel proper
	stops errnos // answers of the filter; empty: EPERM or ENOSYS
	debug bool   // allowed when Spec.Debug is set
}

func kernelCalls(s Setup) []attempt {
	var all []attempt
	for _, c := range append(append(namespaceCalls(), calls...), archCalls...) {
		if c.debug && s.Spec.Debug {
			continue
		}
		all = append(all, attempt{name: c.name, wall: enforce.Kernel, run: c.run})
	}
	return append(all, attempt{name: "personality", wall: enforce.Kernel, run: changePersonality})
}

func (c call) run(*battery) result {
	_, _, errno := unix.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
	if errno == 0 {
		return judge(nil, nil, nil)
	}
	stops := c.stops
	if stops == nil {
		stops = refusedCall
	}
	return judge(errno, stops, c.past)
}

// namespaceCalls ask for new namespaces with flags that contradict each other: CLONE_THREAD needs
// CLONE_SIGHAND (clone(2)), and unshare knows no CLONE_PARENT_SETTID, so the kernel proper always
// answers EINVAL, and nothing is created.
func namespaceCalls() []call {
	flags := []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	var all []call
	for _, f := range flags {
		all = append(all,
			call{name: "clone-" + f.name, nr: unix.SYS_CLONE, past: errnos{unix.EINVAL}, args: [6]uintptr{f.flag | unix.CLONE_THREAD}},
			call{name: "unshare-" + f.name, nr: unix.SYS_UNSHARE, past: errnos{unix.EINVAL}, args: [6]uintptr{f.flag | unix.CLONE_PARENT_SETTID}})
	}
	return append(all,
		// A flag in memory is out of a filter's sight, so clone3 must not exist at all.
		call{name: "clone3", nr: unix.SYS_CLONE3, past: errnos{unix.EINVAL, unix.EFAULT}, stops: errnos{unix.ENOSYS}, args: [6]uintptr{badPointer}},
		call{name: "setns", nr: unix.SYS_SETNS, past: errnos{unix.EBADF}, args: [6]uintptr{noFD}})
}

var (
	fault  = errnos{unix.EFAULT}
	wrong  = errnos{unix.EINVAL, unix.EFAULT, unix.EBADF}
	nobody = errnos{unix.ESRCH}
)

var calls = []call{
	{name: "mount", nr: unix.SYS_MOUNT, past: fault, args: [6]uintptr{badPointer, badPointer, badPointer}},
	{name: "umount", nr: unix.SYS_UMOUNT2, past: fault, args: [6]uintptr{badPointer}},
	{name: "pivot-root", nr: unix.SYS_PIVOT_ROOT, past: fault, args: [6]uintptr{badPointer, badPointer}},
	{name: "chroot", nr: unix.SYS_CHROOT, past: fault, args: [6]uintptr{badPointer}},
	{name: "open-tree", nr: unix.SYS_OPEN_TREE, past: wrong, args: [6]uintptr{cwdFD, badPointer}},
	{name: "move-mount", nr: unix.SYS_MOVE_MOUNT, past: wrong, args: [6]uintptr{noFD, badPointer, noFD, badPointer}},
	{name: "fsopen", nr: unix.SYS_FSOPEN, past: wrong, args: [6]uintptr{badPointer}},
	{name: "fsconfig", nr: unix.SYS_FSCONFIG, past: wrong, args: [6]uintptr{noFD}},
	{name: "fsmount", nr: unix.SYS_FSMOUNT, past: wrong, args: [6]uintptr{noFD, noFlag}},
	{name: "fspick", nr: unix.SYS_FSPICK, past: wrong, args: [6]uintptr{cwdFD, badPointer, noFlag}},
	{name: "mount-setattr", nr: unix.SYS_MOUNT_SETATTR, past: wrong, args: [6]uintptr{cwdFD, badPointer, 0, badPointer, 0}},
	{name: "open-by-handle", nr: unix.SYS_OPEN_BY_HANDLE_AT, past: wrong, args: [6]uintptr{noFD, badPointer}},
	{name: "bpf", nr: unix.SYS_BPF, past: wrong, args: [6]uintptr{0xffff, badPointer, 8}},
	{name: "perf-event", nr: unix.SYS_PERF_EVENT_OPEN, past: wrong, args: [6]uintptr{badPointer, 0, noFD, noFD}, stops: errnos{unix.EPERM, unix.ENOSYS, unix.EACCES}},
	{name: "io-uring", nr: unix.SYS_IO_URING_SETUP, past: wrong, args: [6]uintptr{1, badPointer}},
	{name: "userfaultfd", nr: unix.SYS_USERFAULTFD, past: wrong, args: [6]uintptr{noFlag | 1}}, // 1: UFFD_USER_MODE_ONLY
	// Keyrings are in no namespace; asking for the id of one's own changes nothing.
	{name: "keyctl", nr: unix.SYS_KEYCTL, past: errnos{126}, args: [6]uintptr{unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2)}}, // ENOKEY; -3: session
	{name: "add-key", nr: unix.SYS_ADD_KEY, past: fault, args: [6]uintptr{badPointer, badPointer}},
	{name: "request-key", nr: unix.SYS_REQUEST_KEY, past: fault, args: [6]uintptr{badPointer, badPointer}},
	{name: "ptrace", nr: unix.SYS_PTRACE, past: nobody, args: [6]uintptr{unix.PTRACE_SEIZE, noPid}, debug: true},
	{name: "process-vm-readv", nr: unix.SYS_PROCESS_VM_READV, past: append(nobody, unix.EFAULT, unix.EINVAL), args: [6]uintptr{noPid, badPointer, 1, badPointer, 1}, debug: true},
	{name: "process-vm-writev", nr: unix.SYS_PROCESS_VM_WRITEV, past: append(nobody, unix.EFAULT, unix.EINVAL), args: [6]uintptr{noPid, badPointer, 1, badPointer, 1}, debug: true},
	{name: "process-madvise", nr: unix.SYS_PROCESS_MADVISE, past: wrong, args: [6]uintptr{noFD, badPointer, 1}},
	{name: "pidfd-getfd", nr: unix.SYS_PIDFD_GETFD, past: wrong, args: [6]uintptr{noFD, noFD}},
	{name: "kcmp", nr: unix.SYS_KCMP, past: nobody, args: [6]uintptr{noPid, noPid}},
	{name: "clock-settime", nr: unix.SYS_CLOCK_SETTIME, past: fault, args: [6]uintptr{unix.CLOCK_REALTIME, badPointer}},
	{name: "settimeofday", nr: unix.SYS_SETTIMEOFDAY, past: fault, args: [6]uintptr{badPointer, badPointer}},
	{name: "adjtimex", nr: unix.SYS_ADJTIMEX, past: fault, args: [6]uintptr{badPointer}},
	{name: "clock-adjtime", nr: unix.SYS_CLOCK_ADJTIME, past: fault, args: [6]uintptr{unix.CLOCK_REALTIME, badPointer}},
	{name: "sethostname", nr: unix.SYS_SETHOSTNAME, past: wrong, args: [6]uintptr{badPointer, 8}},
	{name: "setdomainname", nr: unix.SYS_SETDOMAINNAME, past: wrong, args: [6]uintptr{badPointer, 8}},
	{name: "reboot", nr: unix.SYS_REBOOT, past: wrong}, // both magic numbers are wrong
	{name: "kexec", nr: unix.SYS_KEXEC_LOAD, past: wrong, args: [6]uintptr{0, noPid, badPointer, noFlag}},
	{name: "init-module", nr: unix.SYS_INIT_MODULE, past: append(errnos{unix.ENOEXEC}, wrong...), args: [6]uintptr{badPointer, 0, badPointer}},
	{name: "finit-module", nr: unix.SYS_FINIT_MODULE, past: wrong, args: [6]uintptr{noFD, badPointer, noFlag}},
	{name: "delete-module", nr: unix.SYS_DELETE_MODULE, past: fault, args: [6]uintptr{badPointer}},
	{name: "swapon", nr: unix.SYS_SWAPON, past: wrong, args: [6]uintptr{badPointer, noFlag}},
	{name: "swapoff", nr: unix.SYS_SWAPOFF, past: fault, args: [6]uintptr{badPointer}},
	{name: "acct", nr: unix.SYS_ACCT, past: fault, args: [6]uintptr{badPointer}},
	{name: "quotactl", nr: unix.SYS_QUOTACTL, past: wrong, args: [6]uintptr{0xffffffff, badPointer}},
	{name: "syslog", nr: unix.SYS_SYSLOG, past: wrong, args: [6]uintptr{10}}, // SYSLOG_ACTION_SIZE_BUFFER
	{name: "seccomp-listener", nr: unix.SYS_SECCOMP, past: fault, stops: errnos{unix.EINVAL, unix.EPERM, unix.ENOSYS}, // SET_MODE_FILTER, NEW_LISTENER
		args: [6]uintptr{1, 1 << 3, badPointer}},
	// Descriptor -1: the kernel proper answers EBADF before it looks at the request.
	{name: "tiocsti", nr: unix.SYS_IOCTL, past: wrong[2:], stops: terminal, args: [6]uintptr{noFD, unix.TIOCSTI}},
	{name: "tiocsti-high-bits", nr: unix.SYS_IOCTL, past: wrong[2:], stops: terminal, args: [6]uintptr{noFD, unix.TIOCSTI | highBits}},
	{name: "tioclinux", nr: unix.SYS_IOCTL, past: wrong[2:], stops: terminal, args: [6]uintptr{noFD, 0x541c}},
}

// terminal is how the filter refuses a request that pushes input: as a kernel built without it.
var terminal = errnos{unix.EPERM, unix.EIO, unix.ENOTTY, unix.EACCES}

// changePersonality asks for executable data pages. The personality belongs to the thread, and is
// put back at once if it could be changed.
func changePersonality(*battery) result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const query, readImpliesExec = 0xffffffff, 0x0400000
	old, _, errno := unix.Syscall(unix.SYS_PERSONALITY, query, 0, 0)
	if errno != 0 {
		return unclear("the query was refused: " + errnoName(errno))
	}
	if _, _, errno = unix.Syscall(unix.SYS_PERSONALITY, old|readImpliesExec, 0, 0); errno != 0 {
		return judge(errno, errnos{unix.EPERM, unix.EINVAL, unix.ENOSYS}, nil)
	}
	unix.Syscall(unix.SYS_PERSONALITY, old, 0, 0)
	return judge(nil, nil, nil)
}

func kernelState() []attempt {
	return []attempt{{name: "filter-in-every-thread", wall: enforce.Kernel, run: func(b *battery) result {
		return b.everyThread(func(s status) error {
			if s.seccomp != 2 {
				return fmt.Errorf("thread %d has seccomp mode %d, want 2 (filter)", s.tid, s.seccomp)
			}
			return nil
		})
	}}}
}
