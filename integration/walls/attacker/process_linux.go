package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processes reach for a process outside, or inside for the cell itself: the test gives its pid.
func processes() []attempt {
	vm := func(nr uintptr) func(t *target) error {
		return func(t *target) error {
			var here, there byte
			local := unix.Iovec{Base: &here, Len: 1}
			remote := unix.Iovec{Base: (*byte)(unsafe.Pointer(&there)), Len: 1}
			err := call(nr, uintptr(t.Pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
			if err == unix.EFAULT {
				return nil // the address means nothing over there; the right was granted
			}
			return err
		}
	}
	return append(processState(), []attempt{
		{"signal", func(t *target) error { return unix.Kill(t.Pid, unix.SIGCONT) }},
		{"signal-null", func(t *target) error { return unix.Kill(t.Pid, 0) }},
		{"signal-thread", func(t *target) error { return unix.Tgkill(t.Pid, t.Pid, unix.SIGCONT) }},
		{"pidfd", func(t *target) error {
			fd, err := unix.PidfdOpen(t.Pid, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}},
		{"ptrace-seize", func(t *target) error {
			if err := call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(t.Pid), 0, 0); err != nil {
				return err
			}
			return nil // the tracer's thread ends, and with it the tracing
		}},
		{"vm-read", vm(unix.SYS_PROCESS_VM_READV)},
		{"vm-write", vm(unix.SYS_PROCESS_VM_WRITEV)},
	}...)
}

// processState changes how a process outside runs, and reaches the objects that processes share.
func processState() []attempt {
	return []attempt{
		{"mem-write", func(t *target) error {
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.Pid), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return f.Close()
		}},
		{"comm-write", func(t *target) error { return writeOnly(fmt.Sprintf("/proc/%d/comm", t.Pid)) }},
		{"oom-score-write", func(t *target) error { return writeOnly(fmt.Sprintf("/proc/%d/oom_score_adj", t.Pid)) }},
		{"prlimit", func(t *target) error {
			var old unix.Rlimit
			return unix.Prlimit(t.Pid, unix.RLIMIT_NOFILE, nil, &old)
		}},
		{"priority", func(t *target) error { return unix.Setpriority(unix.PRIO_PROCESS, t.Pid, 10) }},
		{"affinity", func(t *target) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(t.Pid, &set); err != nil {
				return err
			}
			return unix.SchedSetaffinity(t.Pid, &set)
		}},
		{"shared-memory", func(t *target) error {
			addr, _, errno := unix.Syscall(unix.SYS_SHMAT, uintptr(t.Shm), 0, 0)
			if errno != 0 {
				return errno
			}
			return call(unix.SYS_SHMDT, addr)
		}},
		{"message-queue", func(t *target) error {
			name := append([]byte(strings.TrimPrefix(t.Queue, "/")), 0)
			fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_RDWR, 0, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
	}
}

// writeOnly opens and closes: the process of the control is not changed.
func writeOnly(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// privileges try to become more than the session is.
func privileges() []attempt {
	return []attempt{
		{"capabilities", func(*target) error { return statusHolds("CapEff:\t", "0000000000000000") }},
		{"capabilities-bounding", func(*target) error { return statusHolds("CapBnd:\t", "0000000000000000") }},
		{"new-privileges", func(*target) error { return statusHolds("NoNewPrivs:\t", "1") }},
		{"no-filter", func(*target) error { return statusHolds("Seccomp:\t", "2") }},
		{"capset", func(*target) error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_CHOWN, Permitted: 1 << unix.CAP_CHOWN}}
			return unix.Capset(&header, &data[0])
		}},
		{"setuid-other", func(*target) error { return call(unix.SYS_SETUID, 12345) }},
		{"setgroups", func(*target) error { return call(unix.SYS_SETGROUPS, 0, 0) }},
		{"securebits", func(*target) error { return unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0) }},
		{"setuid-program", func(t *target) error {
			// A program with the set-user-id bit that belongs to another user, as sudo is one.
			out, err := exec.Command(filepath.Join(t.Work, "setuid"), "-euid").Output()
			if err != nil {
				return err
			}
			if euid := strings.TrimSpace(string(out)); euid == fmt.Sprint(os.Getuid()) {
				return fmt.Errorf("it runs as uid %s: %w", euid, unix.EPERM)
			}
			return nil
		}},
		{"other-filter", func(*target) error {
			// Stacking a filter of one's own only takes away; it is allowed, and must not lift ours.
			allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}
			prog := unix.SockFprog{Len: 1, Filter: &allow}
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			if err := call(unix.SYS_SECCOMP, 1, 0, uintptr(unsafe.Pointer(&prog))); err != nil {
				return err
			}
			return unix.Unshare(unix.CLONE_NEWUSER)
		}},
		{"dump-cell", func(t *target) error {
			_, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", t.Pid))
			return err
		}},
	}
}

// statusHolds succeeds if a line of /proc/self/status does not have the safe value.
func statusHolds(key, safe string) error {
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	_, after, ok := strings.Cut(string(data), "\n"+key)
	if !ok {
		return fmt.Errorf("%s is not in the status", key)
	}
	value, _, _ := strings.Cut(after, "\n")
	if value != safe {
		return nil
	}
	return fmt.Errorf("%s%s: %w", key, value, unix.EPERM)
}

func program(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.200s", name, err, out)
	}
	return nil
}
