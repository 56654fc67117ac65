package native

import (
	"errors"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
)

// Parts of /proc that are made read-only. For a session of uid 0 the kernel's own check is no
// wall: the permission of /proc/sys is decided by "kuid 0", not by a capability, and
// core_pattern there starts programs on the host.
var procReadOnly = []string{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger", "/proc/acpi", "/proc/scsi"}

// Files of /proc that tell about the host's kernel memory, keys and timers.
var procHidden = []string{"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup"}

// Enter finishes the root from inside the pid namespace and gives up every capability. It runs in
// the cell, as PID 1, before Landlock and seccomp, which would refuse the mounts.
func Enter(s enforce.Spec) error {
	// Before the first child: otherwise a child could take the wire with pidfd_getfd(2), or open
	// /proc/1/mem.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return stepError("prctl PR_SET_DUMPABLE", "", err)
	}
	if err := mountProc(s); err != nil {
		return err
	}
	if err := unix.Unmount(hostProc, unix.MNT_DETACH); err != nil {
		return stepError("detach the host's proc", hostProc, err)
	}
	if err := unix.Rmdir(hostProc); err != nil {
		return stepError("rmdir", hostProc, err)
	}
	if !enforcetest.Off(s, enforce.FSWrite) {
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return stepError("remount read-only", "/", err)
		}
	}
	if enforcetest.Off(s, enforce.Priv) {
		return nil
	}
	return dropCapabilities()
}

func mountProc(s enforce.Spec) error {
	if enforcetest.Off(s, enforce.Proc) {
		// Without a pid namespace of its own the cell may not mount proc; it sees the host's.
		return stepError("bind the host's proc on", "/proc", unix.Mount(hostProc, "/proc", "", unix.MS_BIND|unix.MS_REC, ""))
	}
	// hidepid=2: a process sees only what it may trace (proc(5)); the cell itself is not dumpable
	// and so invisible too.
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, "hidepid=2"); err != nil {
		return stepError("mount proc on", "/proc", err)
	}
	for _, p := range procReadOnly {
		if err := readOnlyBind(p); err != nil {
			return stepError("make read-only", p, err)
		}
	}
	for _, p := range procHidden {
		err := unix.Mount(maskFolder+"/file", p, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return stepError("hide", p, err)
		}
	}
	return nil
}

func readOnlyBind(p string) error {
	err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("", p, "", flags, "")
}

// DropPrivileges takes every capability for good from all threads of a process that has no user
// namespace of its own: what uid 0 executes would get those of the bounding set back. Without
// CAP_SETPCAP that set stays, and no_new_privs keeps execve(2) from granting anything of it.
func DropPrivileges() error {
	if ok, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SETPCAP, 0, 0, 0); err != nil || ok == 0 || unix.Geteuid() != 0 {
		return dropCapabilities()
	}
	for c := uintptr(0); c <= 63; c++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
			break // past the last capability of this kernel
		}
		if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); e != 0 {
			return stepError("drop from the bounding set", strconv.Itoa(int(c)), e)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, lockedSecurebits, 0, 0, 0, 0); e != 0 {
		return stepError("lock securebits", "", e)
	}
	return dropCapabilities()
}

// dropCapabilities empties the ambient, effective, permitted and inheritable sets of every
// thread of the process. The bounding set is empty since the fork.
func dropCapabilities() error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		return stepError("clear ambient capabilities", "", e)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if e != 0 {
		return stepError("capset", "none", e)
	}
	return nil
}
