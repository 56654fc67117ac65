package probe

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// procSignals send signal 0 only: the kernel checks the right to signal and sends nothing.
func procSignals() []attempt {
	return []attempt{
		{name: "kill-all", wall: enforce.Proc, run: func(b *battery) result {
			return judge(b.killAll, b.scoped(b.ownPid, unix.ESRCH), nil)
		}},
		{name: "kill", wall: enforce.Proc, run: func(b *battery) result {
			return b.foreign(func(pid int) error { return unix.Kill(pid, 0) })
		}},
		{name: "tgkill", wall: enforce.Proc, run: func(b *battery) result {
			return b.foreign(func(pid int) error { return unix.Tgkill(pid, pid, 0) })
		}},
		{name: "pidfd", wall: enforce.Proc, run: func(b *battery) result { return b.foreign(signalByPidfd) }},
	}
}

func signalByPidfd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, 0, nil, 0)
}

// foreign makes an attempt on the process that the supervisor named by its host number. In an own
// namespace a small number can be one of our own threads: then the foreign process has no number
// here, which is the wall.
func (b *battery) foreign(try func(pid int) error) result {
	pid := b.Targets.Process
	if pid <= 0 {
		return unclear("the setup names no target")
	}
	if b.ownPid && b.Backend != enforce.Bare && isOwnThread(pid) {
		return stopped(fmt.Sprintf("%d is a thread of this process", pid))
	}
	return judge(try(pid), b.scoped(b.ownPid, unix.ESRCH), nil)
}

func isOwnThread(tid int) bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/task/"+strconv.Itoa(tid), &st) == nil
}

func procFiles() []attempt {
	file := func(name string) attempt {
		return attempt{name: "proc-" + name, wall: enforce.Proc, run: func(b *battery) result { return b.foreignFile(name) }}
	}
	return []attempt{
		file("environ"), file("mem"), file("maps"), file("root"), file("cwd"), file("fd"),
		{name: "read-memory", wall: enforce.Proc, run: func(b *battery) result { return b.foreignMemory() }},
		{name: "list", wall: enforce.Proc, run: (*battery).listProcesses},
		{name: "namespace", wall: enforce.Proc, only: enforce.Native,
			run: func(b *battery) result { return judgeOwn("/proc/self/ns/pid", b.Targets.HostPidNS) }},
	}
}

func (b *battery) foreignFile(name string) result {
	pid := b.Targets.Process
	if pid <= 0 {
		return unclear("the setup names no target")
	}
	if b.ownPid && b.Backend != enforce.Bare && isOwnThread(pid) {
		return stopped(fmt.Sprintf("%d is a thread of this process", pid))
	}
	stops := errnos{unix.ENOENT}
	if b.Backend == enforce.Bare { // ptrace_may_access under a Landlock domain, or Landlock on /proc
		stops = append(b.landlock(), unix.EPERM)
	}
	return b.open(fmt.Sprintf("/proc/%d/%s", pid, name), unix.O_RDONLY, stops)
}

// foreignMemory names no memory, so that nothing is read even where it is allowed: EFAULT and
// success show that the process was in reach.
func (b *battery) foreignMemory() result {
	if b.Targets.Process <= 0 {
		return unclear("the setup names no target")
	}
	var buf [1]byte
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(1)
	remote := [2]uintptr{badPointer, 1}
	_, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(b.Targets.Process),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno == 0 {
		return judge(nil, nil, nil)
	}
	stops := refusedCall
	if b.ownPid {
		stops = append(errnos{unix.ESRCH}, stops...)
	}
	return judge(errno, stops, errnos{unix.EFAULT})
}

// listProcesses looks for a process in /proc that is neither this one nor a descendant of it, and
// for a proc of another namespace, in which this process has another number.
func (b *battery) listProcesses() result {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return unclear(err.Error())
	}
	if self != strconv.Itoa(b.pid) {
		return leaked("/proc is of another namespace: this process is " + self + " in it")
	}
	names, err := list("/proc")
	if err != nil {
		return unclear(err.Error())
	}
	parents := map[int]int{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent, err := parentOf(pid); err == nil { // else it ended in between
				parents[pid] = parent
			}
		}
	}
	for pid := range parents {
		if !descends(pid, b.pid, parents) {
			return leaked(fmt.Sprintf("process %d is visible, among %d", pid, len(parents)))
		}
	}
	return stopped(fmt.Sprintf("%d own processes", len(parents)))
}

func descends(pid, ancestor int, parents map[int]int) bool {
	for range len(parents) + 1 {
		if pid == ancestor {
			return true
		}
		next, ok := parents[pid]
		if !ok {
			return false
		}
		pid = next
	}
	return false
}

// parentOf reads the fourth field of stat; the second, in parentheses, may hold anything.
func parentOf(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return strconv.Atoi(string(fields[1]))
}
