package native

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
)

// keeperCapabilities are what building a root needs inside the session's own user namespace.
// They survive the exec as ambient capabilities, because the id inside is not 0. The last four
// are for overlays: overlayfs works with the rights of whoever mounted it, and its work folder
// has mode 000 (ovl_workdir_create in the kernel's fs/overlayfs/super.c). The two for the network make routes, rules and
// the name server's port 53 in the session's own network namespace.
var keeperCapabilities = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE,
	unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID,
}

// Start forks the keeper of a session. The thread that calls it must never end while the session
// lives: the parent-death signal follows the thread that forked (prctl(2), PR_SET_PDEATHSIG).
// files become descriptors 3 and up. The caller owns the process and waits for it.
func Start(s enforce.Spec, binary string, argv []string, stderr *os.File, files ...*os.File) (*os.Process, error) {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{
			{ContainerID: s.Identity.UID, HostID: s.Identity.UID, Size: 1},
		},
		GidMappings: []syscall.SysProcIDMap{
			{ContainerID: s.Identity.GID, HostID: s.Identity.GID, Size: 1},
		},
		AmbientCaps: keeperCapabilities,
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true,
	}
	if os.Geteuid() == 0 {
		// The owner's ids, and no supplementary groups: root's own (or docker's) would stay
		// effective inside. Without root they cannot be dropped, and the report says so.
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: uint32(s.Identity.UID), Gid: uint32(s.Identity.GID), Groups: []uint32{}, NoSetGroups: setgroupsDenied()}
	}
	if enforcetest.Off(s, enforce.NetEgress) || enforcetest.Off(s, enforce.NetLocal) {
		attr.Cloneflags &^= syscall.CLONE_NEWNET
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	forkMu.Lock()
	defer forkMu.Unlock()
	p, err := os.StartProcess(binary, argv, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: append([]*os.File{null, null, stderr}, files...),
		Sys:   attr,
	})
	if err != nil {
		return nil, &StepError{Step: "clone the keeper into new namespaces", Err: err}
	}
	return p, nil
}

// forkMu keeps two forks with id maps apart. Package syscall writes the maps of a child through
// descriptors of /proc/PID without close-on-exec (writeIDMappings), and lets several goroutines fork
// at once: another child would inherit them, and its cell would find them open.
var forkMu sync.Mutex

// SetUp prepares the keeper's process and its namespaces before Build.
func SetUp(s enforce.Spec) error {
	// Nothing of the same user may read the keeper's memory or take its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return stepError("prctl PR_SET_DUMPABLE", "", err)
	}
	if err := unix.Sethostname([]byte("coworker")); err != nil {
		return stepError("sethostname in the new uts namespace", "coworker", err)
	}
	if err := boundNamespace(s); err != nil {
		return err
	}
	if enforcetest.Off(s, enforce.NetEgress) || enforcetest.Off(s, enforce.NetLocal) {
		return nil
	}
	return stepError("set up", "lo", loopbackUp())
}

// userLimits bound what counts against the person's uid on the whole host (namespaces(7),
// /proc/sys/user): they are set in the session's own user namespace. No user namespace can be made
// inside, whatever the system-call filter lets through, and watchers cannot use up the 128 inotify
// instances that the person's own programs share.
var userLimits = []struct{ name, value string }{
	{"max_user_namespaces", "0"},
	{"max_inotify_instances", "64"},
}

func boundNamespace(s enforce.Spec) error {
	if enforcetest.Off(s, enforce.Priv) {
		return nil
	}
	for _, l := range userLimits {
		name := "/proc/sys/user/" + l.name
		err := os.WriteFile(name, []byte(l.value), 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // max_inotify_instances came with Linux 4.13, and inotify may be left out
		}
		if err != nil {
			return stepError("bound the user namespace", name, err)
		}
	}
	return nil
}

// loopbackUp sets lo up in the new network namespace; the kernel adds 127.0.0.1/8 and ::1 itself.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Cell is a started cell as the keeper sees it.
type Cell struct {
	Pid   int          // in the keeper's pid namespace, which is the supervisor's
	Ended <-chan Ended // gets one value
}

// Ended tells how the cell's PID 1 ended.
type Ended struct{ Code, Signal int }

// StartCell forks the cell into its own pid and cgroup namespaces. program is a descriptor of
// the cell's binary; wire becomes descriptor 3. The cell starts with an empty bounding set,
// locked securebits and CAP_SYS_ADMIN alone, which it needs to mount /proc and gives up in Enter.
func (r *Root) StartCell(program int, argv []string, stderr, wire *os.File) (*Cell, error) {
	type started struct {
		p   *os.Process
		err error
	}
	result := make(chan started)
	ended := make(chan Ended, 1)
	go func() {
		// The thread changes its own credentials and must not serve other goroutines again, and
		// it must live as long as the cell (parent-death signal). So it waits for the cell.
		runtime.LockOSThread()
		p, err := r.forkCell(program, argv, stderr, wire)
		result <- started{p, err}
		if err == nil {
			ended <- wait(p)
		}
	}()
	s := <-result
	if s.err != nil {
		return nil, s.err
	}
	return &Cell{Pid: s.p.Pid, Ended: ended}, nil
}

func wait(p *os.Process) Ended {
	state, err := p.Wait()
	if err != nil {
		return Ended{Code: -1}
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Ended{Code: -1, Signal: int(ws.Signal())}
	}
	return Ended{Code: state.ExitCode()}
}

func (r *Root) forkCell(program int, argv []string, stderr, wire *os.File) (*os.Process, error) {
	if !r.b.off(enforce.Priv) {
		if err := shedThread(); err != nil {
			return nil, err
		}
	}
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if r.b.off(enforce.Proc) {
		attr.Cloneflags &^= syscall.CLONE_NEWPID
	}
	if r.b.off(enforce.Life) {
		attr.Pdeathsig = 0
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, stepError("open", "/dev/null", err)
	}
	defer null.Close()
	p, err := os.StartProcess(hostProc+"/self/fd/"+strconv.Itoa(program), argv, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []*os.File{null, null, stderr, wire},
		Sys:   attr,
	})
	return p, stepError("start the cell", "", err)
}

// Securebits and their locks (capabilities(7)): no capabilities for uid 0, no fix-ups on setuid,
// no raising of ambient capabilities.
const lockedSecurebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// shedThread empties the bounding set of the calling thread, keeps CAP_SYS_ADMIN alone as an
// ambient capability and locks the securebits. A child forked from this thread inherits that.
func shedThread() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return stepError("clear ambient capabilities", "", err)
	}
	const admin = 1 << unix.CAP_SYS_ADMIN
	if err := capset(admin|1<<unix.CAP_SETPCAP, admin|1<<unix.CAP_SETPCAP, admin); err != nil {
		return stepError("capset", "CAP_SYS_ADMIN, CAP_SETPCAP", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0); err != nil {
		return stepError("raise the ambient capability", "CAP_SYS_ADMIN", err)
	}
	for c := uintptr(0); c <= 63; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_AUDIT_READ {
			break // past the last capability of this kernel
		}
		if err != nil {
			return stepError("drop from the bounding set", strconv.Itoa(int(c)), err)
		}
	}
	return stepError("lock securebits", "", unix.Prctl(unix.PR_SET_SECUREBITS, lockedSecurebits, 0, 0, 0))
}

func capset(effective, permitted, inheritable uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(permitted), Inheritable: uint32(inheritable)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32), Inheritable: uint32(inheritable >> 32)},
	}
	return unix.Capset(&header, &data[0])
}

// setgroupsDenied reports whether this user namespace does not allow setgroups(2), as where an
// unprivileged user made it (user_namespaces(7)); then there are no groups to drop either.
func setgroupsDenied() bool {
	data, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(data)) == "deny"
}
