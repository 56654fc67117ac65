package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// needed are the capabilities that the helper keeps. The unit file names the same; integration/wallsd compares them.
//
//   - KILL: sessions on v1 hierarchies are ended process by process
//   - SYS_PTRACE: to look at the namespaces of a keeper, and at /proc where hidepid is set
//   - SETUID, SETGID: paths in the list of protected files are looked at with the rights of the user who sent them
//   - BPF, PERFMON, NET_ADMIN: programs on control groups and on the kernel's security hooks
//   - SYS_ADMIN: a step into the network namespace of a keeper, which is how its cookie is asked for (setns(2))
var needed = []uintptr{
	unix.CAP_KILL, unix.CAP_SYS_PTRACE, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN,
}

// dropCapabilities drops all others, on every thread. What is not there is not asked for: a container may lack some.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep(c) {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 && errno != unix.EINVAL && errno != unix.EPERM {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, errno)
		}
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(header, &have[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	for i := range have {
		mask := uint32(0)
		for _, c := range needed {
			if int(c/32) == i {
				mask |= 1 << (c % 32)
			}
		}
		have[i].Permitted &= mask
		have[i].Effective = have[i].Permitted
		have[i].Inheritable = 0
	}
	return setCapabilities(header, &have)
}

func keep(c uintptr) bool {
	for _, n := range needed {
		if n == c {
			return true
		}
	}
	return false
}

func setCapabilities(header *unix.CapUserHeader, set *[2]unix.CapUserData) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(&set[0])), 0)
	if errno != 0 {
		return fmt.Errorf("set the capabilities: %w", errno)
	}
	return nil
}
