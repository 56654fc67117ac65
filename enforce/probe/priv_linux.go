package probe

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

func priv() []attempt {
	add := func(name string, only enforce.BackendName, run func(*battery) result) attempt {
		return attempt{name: name, wall: enforce.Priv, only: only, run: run}
	}
	return []attempt{
		add("no-new-privs", "", func(b *battery) result { return b.everyThread(status.checkNoNewPrivs) }),
		add("capabilities", "", func(b *battery) result { return b.everyThread(b.noCaps()) }),
		// Emptying and locking need CAP_SETPCAP, which bare may not have had.
		add("bounding-set", enforce.Native, readBoundingSet),
		add("securebits", enforce.Native, lockedSecurebits),
		add("dumpable", "", readDumpable),
		add("setuid-root", "", becomeRoot),
		add("setgroups", "", changeGroups),
		add("groups", "", foreignGroups),
		add("uid-map", enforce.Native, func(b *battery) result { return oneID("/proc/self/uid_map", b.Spec.Identity.UID) }),
		add("gid-map", enforce.Native, func(b *battery) result { return oneID("/proc/self/gid_map", b.Spec.Identity.GID) }),
		add("user-namespace", "", func(b *battery) result {
			return call{nr: unix.SYS_UNSHARE, past: errnos{unix.EINVAL}, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_PARENT_SETTID}}.run(b)
		}),
	}
}

// readBoundingSet asks the kernel, not /proc: capability 0 stands for all, since status showed
// the whole mask.
func readBoundingSet(*battery) result {
	n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, 0, 0, 0, 0)
	if err != nil {
		return unclear(errnoName(err))
	}
	if n != 0 {
		return leaked("CAP_CHOWN is in the bounding set")
	}
	return stopped("CAP_CHOWN is not in the bounding set")
}

// lockedSecurebits wants uid 0 to be worth nothing, for good: NOROOT and NOROOT_LOCKED, see
// capabilities(7).
func lockedSecurebits(*battery) result {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return unclear(errnoName(err))
	}
	const want = 1<<0 | 1<<1
	if bits&want != want {
		return leaked(fmt.Sprintf("securebits %#x lack NOROOT or its lock", bits))
	}
	return stopped(fmt.Sprintf("securebits %#x", bits))
}

// readDumpable wants 0, or 2 (prctl(2): readable by root only): with 1, a child can take
// descriptors and memory of the cell.
func readDumpable(*battery) result {
	n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	switch {
	case err != nil:
		return unclear(errnoName(err))
	case n == 1:
		return leaked("the cell is dumpable")
	default:
		return stopped(fmt.Sprintf("dumpable %d", n))
	}
}

// becomeRoot asks for uid 0 on a thread of its own, which ends with the goroutine if the answer
// was yes (runtime.LockOSThread without an unlock). A cell of uid 0 asks for uid 1 instead.
func becomeRoot(b *battery) result {
	target := uintptr(0)
	if os.Getuid() == 0 {
		target = 1
	}
	answer := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread()
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, target, target, target)
		answer <- errno
		if errno != 0 {
			runtime.UnlockOSThread()
		}
	}()
	if errno := <-answer; errno != 0 {
		// EINVAL: the id is not mapped in this user namespace, setresuid(2).
		return judge(errno, errnos{unix.EPERM, unix.EINVAL, unix.ENOSYS}, nil).at(fmt.Sprintf("uid %d", target))
	}
	return judge(nil, nil, nil).at(fmt.Sprintf("uid %d", target))
}

// changeGroups asks for more groups than there can be (NGROUPS_MAX is 65536): EINVAL comes after
// the check of the right, and nothing is changed.
func changeGroups(*battery) result {
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1<<20, badPointer, 0)
	return judge(errno, refusedCall, errnos{unix.EINVAL})
}

// overflowID stands for every id that the user namespace does not map. An unprivileged person's
// groups cannot be dropped (setgroups is denied) and are shown as this one.
const overflowID = 65534

func foreignGroups(b *battery) result {
	groups, err := unix.Getgroups()
	if err != nil {
		return unclear(errnoName(err))
	}
	unmapped := 0
	for _, g := range groups {
		if g == overflowID {
			unmapped++
		} else if g != b.Spec.Identity.GID {
			return leaked(fmt.Sprintf("group %d is effective", g))
		}
	}
	return stopped(fmt.Sprintf("%d groups, %d of them without a name here", len(groups), unmapped))
}

// oneID wants a map of exactly one id on itself.
func oneID(file string, id int) result {
	data, err := os.ReadFile(file)
	if err != nil {
		return unclear(err.Error())
	}
	got := strings.Join(strings.Fields(string(data)), " ")
	if got != fmt.Sprintf("%d %d 1", id, id) {
		return leaked(fmt.Sprintf("map %q, want %d alone", got, id))
	}
	return stopped("map " + got)
}
