//go:build seccompgen

package main

import "syscall"

// Values the kernel's headers define and Go's syscall package does not; the same on every architecture.
const (
	int32Bits = 0xffffffff // an int or unsigned int argument

	// clone(2), unshare(2). CLONE_NEWTIME shares its bit with the exit signal of clone and is a flag of unshare only.
	newNamespaces = 0x7e020000
	newTime       = 0x80

	sockTypeBits = 0xf // SOCK_TYPE_MASK; the rest of type is SOCK_CLOEXEC and SOCK_NONBLOCK
	inetCube     = 0xfffffff7
	familyBits   = 0x3f  // AF_MAX is 46 in 6.18
	protocolBits = 0x1ff // IPPROTO_MPTCP, the highest, is 262
	msgFastOpen  = 0x20000000

	tcpFastOpenConnect = 30
	tcpULP             = 31

	fileTypeBits = 0o170000
	setIDBits    = 0o6000
	setUID       = 0o4000

	renameWhiteout = 4 // leaves a character device behind

	oAccMode = 0o3
	oCreat   = 0o100
	oTrunc   = 0o1000
	oTmpfile = 0o20000000 // __O_TMPFILE without O_DIRECTORY

	seccompNewListener = 1 << 3
)

const (
	eperm           = action(syscall.EPERM)
	eacces          = action(syscall.EACCES)
	einval          = action(syscall.EINVAL)
	eio             = action(syscall.EIO)
	enotty          = action(syscall.ENOTTY)
	enosys          = action(syscall.ENOSYS)
	enoprotoopt     = action(syscall.ENOPROTOOPT)
	eopnotsupp      = action(syscall.EOPNOTSUPP)
	eafnosupport    = action(syscall.EAFNOSUPPORT)
	eprotonosupport = action(syscall.EPROTONOSUPPORT)
	esocktnosupport = action(syscall.ESOCKTNOSUPPORT)
)

// allowed calls are let through whatever their arguments are.
var allowed = []string{
	// Files and directories by path or descriptor.
	"access", "chdir", "chown", "close", "close_range", "copy_file_range", "dup", "dup2", "dup3", "faccessat",
	"faccessat2", "fadvise64", "fallocate", "fchdir", "fchown", "fchownat", "fcntl", "fdatasync", "flock", "fstat",
	"fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "lchown", "link", "linkat",
	"lseek", "lstat", "mkdir", "mkdirat", "newfstatat", "pread64", "preadv", "preadv2", "pwrite64", "pwritev",
	"pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "rename", "renameat", "rmdir",
	"sendfile", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
	"tee", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
	"cachestat",
	"fgetxattr", "flistxattr", "fremovexattr", "fsetxattr", "getxattr", "lgetxattr", "listxattr", "llistxattr",
	"lremovexattr", "lsetxattr", "removexattr", "setxattr",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
	"io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit", // the old, file-only AIO
	// Waiting.
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
	"pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4", "timerfd_create",
	"timerfd_gettime", "timerfd_settime",
	// Memory.
	"brk", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "mincore", "mlock", "mlock2", "mlockall",
	"mmap", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
	"pkey_mprotect",
	// Processes, threads, identity.
	"alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex",
	"futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "getcpu", "getegid", "geteuid",
	"getgid", "getgroups", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom",
	"getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get", "ioprio_set",
	"kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "pause", "pidfd_open",
	"pidfd_send_signal", "prctl", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending",
	"rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
	"sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
	"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
	"sched_setscheduler", "sched_yield", "set_robust_list", "set_tid_address", "setfsgid", "setfsuid", "setgid",
	"setgroups", "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid",
	"setrlimit", "setsid", "setuid", "sigaltstack", "sysinfo", "tgkill", "times", "tkill", "uname", "vfork", "wait4",
	"waitid",
	// Time, read only.
	"clock_getres", "clock_gettime", "clock_nanosleep", "gettimeofday", "nanosleep", "time", "timer_create",
	"timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
	// Sockets that exist already: what they may be is decided where they are made.
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "recvfrom", "recvmmsg",
	"recvmsg", "shutdown",
}

// ownIPC are System V IPC and POSIX message queues. Without an own IPC namespace they reach the objects of the host.
var ownIPC = []string{
	"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
	"msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop",
	"shmat", "shmctl", "shmdt", "shmget",
}

// numbered calls are newer than the library's table, so they are given by number. libseccomp translates a foreign
// architecture's numbers by name and cannot do it for these: on arm64 they stay ENOSYS, as on an older kernel.
var numbered = map[string]map[string]int{
	"amd64": {
		"uretprobe":     335, // 6.11: only the kernel's own trampoline calls it; ENOSYS would crash a traced program
		"uprobe":        336, // 6.18: likewise
		"mseal":         462, // 6.10
		"setxattrat":    463, // 6.13
		"getxattrat":    464,
		"listxattrat":   465,
		"removexattrat": 466,
	},
}

// refused calls get an errno other than ENOSYS, the one a kernel gives that has the call but not the privilege.
// Calls found in no table here get ENOSYS.
var refused = map[action][]string{
	eperm: {
		"acct", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init",
		"fanotify_mark", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "ioperm", "iopl",
		"kcmp", "kexec_file_load", "kexec_load", "mount", "mount_setattr", "move_mount", "name_to_handle_at",
		"open_by_handle_at", "open_tree", "pidfd_getfd", "pivot_root", "process_madvise", "quotactl", "quotactl_fd",
		"reboot", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2",
		"userfaultfd", "vhangup",
	},
	eacces: {"perf_event_open"}, // what perf_event_paranoid gives
}

// tracing is refused with EPERM, and allowed by the debug variant.
var tracing = []string{"ptrace", "process_vm_readv", "process_vm_writev"}

// onlyAMD64 exist on amd64 and not on arm64. A name that is missing from an architecture and not listed here stops
// the generation.
var onlyAMD64 = []string{
	"access", "alarm", "arch_prctl", "chmod", "chown", "creat", "dup2", "epoll_create", "epoll_wait", "eventfd", "fork",
	"futimesat", "getdents", "getpgrp", "inotify_init", "ioperm", "iopl", "lchown", "link", "lstat", "mkdir", "mknod",
	"open", "pause", "pipe", "poll", "readlink", "rename", "rmdir", "select", "signalfd", "stat", "symlink", "time",
	"unlink", "utime", "utimes", "vfork",
}

// conditional calls are decided by their registers. Memory behind a pointer is out of reach of a filter: that is why
// clone3 and openat2, whose flags lie there, are not allowed at all.
func conditional(v string) map[string]*node {
	noFastOpen := func(flags uint) *node { return without(flags, msgFastOpen, eopnotsupp) }
	noSetUID := func(mode uint) *node { return without(mode, setUID, eperm) }
	calls := map[string]*node{
		"chmod": noSetUID(1), "fchmod": noSetUID(1), "fchmodat": noSetUID(2), "fchmodat2": noSetUID(2),
		"truncate": leaf(allow), "creat": without(1, setIDBits, eperm), "open": create(1), "openat": create(2),
		"mknod": device(1), "mknodat": device(2), "renameat2": without(4, renameWhiteout, einval),
		"clone": without(0, newNamespaces, eperm), "unshare": without(0, newNamespaces|newTime, eperm),
		"sendto": noFastOpen(3), "sendmsg": noFastOpen(2), "sendmmsg": noFastOpen(3),
		"ioctl": terminals(), "personality": personality(), "seccomp": stacking(), "setsockopt": tcpOptions(),
		"socket": sockets(v), "socketpair": pairs(),
	}
	if !ownNamespaces(v) {
		// prlimit acts on any process of the same uid, and neither a pid namespace nor Landlock is in its way.
		calls["prlimit64"] = without(0, int32Bits, eperm)
	}
	if v == "bare-offline" {
		calls["truncate"] = leaf(eacces)
		calls["open"], calls["openat"] = noTruncate(1), noTruncate(2)
	}
	return calls
}

// ownNamespaces tells whether the process has its own network, IPC and pid namespaces.
func ownNamespaces(v string) bool { return v == "native" || v == "debug" }

// create refuses set-id bits in the mode of a file that open or openat makes; without O_CREAT or O_TMPFILE the mode
// register holds anything. What is made is never a directory, so the set-group-id bit has no honest use.
func create(flags uint) *node {
	mode := without(flags+1, setIDBits, eperm)
	const tmp = oCreat | oTmpfile
	return choose(flags, tmp, mode, when(values(0), leaf(allow)))
}

// noTruncate refuses O_TRUNC without the right to write: with read access, and with access mode 3, which opens for
// neither (open(2)). Landlock below ABI 3 sees no attempt to write in them.
func noTruncate(flags uint) *node {
	const make, write, readWrite = oCreat | oTmpfile, syscall.O_WRONLY, syscall.O_RDWR
	return choose(flags, make|oTrunc|oAccMode, without(flags+1, setIDBits, eperm),
		when([]cube{{oTrunc | oAccMode, oTrunc}, {oTrunc | oAccMode, oTrunc | oAccMode}}, leaf(eacces)),
		when([]cube{{make | oTrunc, 0}, {make | oTrunc | oAccMode, oTrunc | write}, {make | oTrunc | oAccMode, oTrunc | readWrite}}, leaf(allow)))
}

// device allows regular files, FIFOs and sockets without set-id bits.
func device(mode uint) *node {
	return choose(mode, fileTypeBits|setIDBits, leaf(eperm),
		when(values(0, syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK), leaf(allow)))
}

// terminals refuses to push input into a terminal (TIOCSTI, and TIOCLINUX with its paste on the console) with the errno
// of a kernel built without, and to load a line discipline.
func terminals() *node {
	const setDiscipline, pushInput, console = 0x5423, 0x5412, 0x541c
	return choose(1, int32Bits, leaf(allow),
		when(values(pushInput), leaf(eio)), when(values(console), leaf(enotty)), when(values(setDiscipline), leaf(einval)))
}

// personality allows the default, the query, and the one flag debuggers and sanitizers set on themselves.
func personality() *node {
	const noRandomize, personalityBits = 0x0040000, 0x07ffffff
	return choose(0, int32Bits, leaf(einval), when(values(0, noRandomize, int32Bits), leaf(allow))).within(personalityBits)
}

// stacking lets a program add filters of its own. A listener would hand the decision to another process.
func stacking() *node {
	return choose(0, int32Bits, leaf(einval),
		when(values(0, 2), leaf(allow)),
		when(values(1), without(1, seccompNewListener, einval))).within(3)
}

// tcpOptions refuses a connect that hides in the first write, and the upper layer protocols (TLS, SMC, ESP) in the
// kernel.
func tcpOptions() *node {
	return choose(1, int32Bits, leaf(allow), when(values(syscall.IPPROTO_TCP),
		choose(2, int32Bits, leaf(allow), when(values(tcpFastOpenConnect, tcpULP), leaf(enoprotoopt)))))
}

func unixTypes(refusal action) *node {
	return choose(1, sockTypeBits, leaf(refusal),
		when(values(syscall.SOCK_STREAM, syscall.SOCK_DGRAM, syscall.SOCK_SEQPACKET), leaf(allow)))
}

func pairs() *node {
	return choose(0, int32Bits, leaf(eopnotsupp), when(values(syscall.AF_UNIX), unixTypes(esocktnosupport))).within(familyBits)
}

// sockets lists what may be made; every other family, type and protocol is refused.
func sockets(v string) *node {
	protocol := func(allowed ...uint64) *node {
		return choose(2, int32Bits, leaf(eprotonosupport), when(values(allowed...), leaf(allow))).within(protocolBits)
	}
	const inet = syscall.AF_INET & inetCube // AF_INET is 2, AF_INET6 10: one cube for both
	local, datagram := unixTypes(esocktnosupport), protocol(0, syscall.IPPROTO_UDP)
	if !ownNamespaces(v) {
		local, datagram = leaf(eafnosupport), leaf(eacces)
	}
	internet := choose(1, sockTypeBits, leaf(esocktnosupport),
		when(values(syscall.SOCK_STREAM), protocol(0, syscall.IPPROTO_TCP)),
		when(values(syscall.SOCK_DGRAM), datagram),
		when(values(syscall.SOCK_RAW), leaf(eperm)))
	if v == "bare-offline" {
		internet = leaf(eafnosupport)
	}
	return choose(0, int32Bits, leaf(eafnosupport),
		when(values(syscall.AF_UNIX), local),
		when([]cube{{inetCube, inet}}, internet),
		when(values(syscall.AF_NETLINK), choose(1, sockTypeBits, leaf(esocktnosupport),
			when(values(syscall.SOCK_RAW, syscall.SOCK_DGRAM), protocol(0))))).within(familyBits)
}
