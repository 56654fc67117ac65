package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childMode names what the re-executed test binary does: a filter cannot be taken off again.
const (
	childMode    = "COWORKER_SECCOMP_TEST"
	childVariant = "COWORKER_SECCOMP_VARIANT" // empty: no filter, the control
)

func TestMain(m *testing.M) {
	mode := os.Getenv(childMode)
	if mode == "" {
		os.Exit(m.Run())
	}
	if err := child(mode, Variant(os.Getenv(childVariant))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(111)
	}
	os.Exit(0)
}

func child(mode string, v Variant) error {
	switch mode {
	case "conflict":
		return conflict()
	case "benchmark":
		start := time.Now()
		if err := Load(v); err != nil {
			return err
		}
		fmt.Println(time.Since(start).Nanoseconds())
		return nil
	}
	stop, threads := lockedThreads(4)
	defer stop()
	if v != "" {
		if err := Load(v); err != nil {
			return err
		}
	}
	switch mode {
	case "attempts":
		return json.NewEncoder(os.Stdout).Encode(attempts())
	case "threads":
		return json.NewEncoder(os.Stdout).Encode(threads())
	case "samples":
		tables, err := callNumbers()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(takeSamples(tables[runtime.GOARCH]))
	case "refused":
		return json.NewEncoder(os.Stdout).Encode(refusedByKernel(v))
	case "x32":
		_, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		fmt.Println(int(errno))
		return nil
	case "exec":
		return unix.Exec(os.Args[1], os.Args[1:], cleanEnv())
	}
	return fmt.Errorf("mode %q", mode)
}

func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "COWORKER_SECCOMP_") {
			env = append(env, e)
		}
	}
	return env
}

// lockedThreads starts n threads before the filter is loaded; the second function asks each of them what it may do,
// and the kernel how many threads have a filter.
func lockedThreads(n int) (stop func(), ask func() threadReport) {
	ask1, answer, done := make([]chan bool, n), make(chan int), make(chan bool)
	for i := range ask1 {
		ask1[i] = make(chan bool)
		go func() {
			runtime.LockOSThread()
			for range ask1[i] {
				answer <- errnoOf(unix.Unshare(unix.CLONE_NEWUTS))
			}
			done <- true
		}()
	}
	ask = func() (r threadReport) {
		for _, c := range ask1 {
			c <- true
			r.Errnos = append(r.Errnos, <-answer)
		}
		r.Threads, r.Filtered = filteredThreads()
		return r
	}
	stop = func() {
		for _, c := range ask1 {
			close(c)
			<-done
		}
	}
	return stop, ask
}

type threadReport struct {
	Errnos            []int
	Threads, Filtered int
}

func filteredThreads() (threads, filtered int) {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil {
			threads++
			if strings.Contains(string(text), "\nSeccomp:\t2\n") && strings.Contains(string(text), "\nNoNewPrivs:\t1\n") {
				filtered++
			}
		}
	}
	return threads, filtered
}

func conflict() error {
	divergent := make(chan error)
	hold := make(chan bool)
	go func() {
		runtime.LockOSThread()
		allowAll := []Instruction{{Code: opReturn, K: uint32(Allow)}}
		fprog := unix.SockFprog{Len: 1, Filter: (*unix.SockFilter)(unsafe.Pointer(&allowAll[0]))}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0)
		}
		divergent <- err
		<-hold
	}()
	if err := <-divergent; err != nil {
		return err
	}
	defer close(hold)
	err := Load(Native)
	if err == nil || !strings.Contains(err.Error(), "has a filter of its own") {
		return fmt.Errorf("Load beside a thread with another filter: %v", err)
	}
	return nil
}

func errnoOf(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	if err != nil {
		return -1
	}
	return 0
}

func raw(nr uintptr, args ...uintptr) int {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return int(errno)
}

func madeSocket(family, kind, protocol int) int {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return errnoOf(err)
}

func closing(nr uintptr, args ...uintptr) int {
	var a [6]uintptr
	copy(a[:], args)
	fd, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno == 0 {
		unix.Close(int(fd))
	}
	return int(errno)
}

// attempts tries each thing for real and reports the errno. None of them does harm when nothing stops it: what could
// is tried only with arguments the kernel itself refuses.
func attempts() map[string]int {
	at := uintptr(unix.AT_FDCWD & (1<<64 - 1))
	dir, err := os.MkdirTemp("", "seccomp")
	if err != nil {
		return map[string]int{"tempdir": -1}
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "f")
	os.WriteFile(file, nil, 0o644)
	path := func(s string) uintptr { return uintptr(unsafe.Pointer(&append([]byte(s), 0)[0])) }
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return map[string]int{"ptmx": errnoOf(err)}
	}
	defer unix.Close(master)
	self := uintptr(os.Getpid())
	letter := []byte("x")
	got := map[string]int{
		"clone userns":      raw(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_SIGHAND), // the kernel: EINVAL
		"clone3":            raw(unix.SYS_CLONE3, 0, 0),
		"unshare none":      raw(unix.SYS_UNSHARE, unix.CLONE_FS),
		"setns":             raw(unix.SYS_SETNS, ^uintptr(0), 0),
		"mount":             raw(unix.SYS_MOUNT, 0, path("/nonexistent"), 0, 0, 0),
		"open_tree":         closing(unix.SYS_OPEN_TREE, at, path("/"), unix.OPEN_TREE_CLOEXEC),
		"keyring":           raw(unix.SYS_KEYCTL, 0, uintptr(0xfffffffd), 0), // session keyring id
		"add_key":           raw(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0),
		"io_uring":          raw(unix.SYS_IO_URING_SETUP, 0, 0),
		"openat2":           raw(unix.SYS_OPENAT2, at, path("/"), 0, 0),
		"userfaultfd":       closing(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1),
		"perf":              raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0),
		"bpf":               raw(unix.SYS_BPF, 0, 0, 0),
		"tiocsti":           raw(unix.SYS_IOCTL, uintptr(master), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter[0]))),
		"tiocsti high bits": raw(unix.SYS_IOCTL, uintptr(master), 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&letter[0]))),
		"window size":       raw(unix.SYS_IOCTL, uintptr(master), unix.TIOCGWINSZ, uintptr(unsafe.Pointer(new(unix.Winsize)))),
		"ptrace":            raw(unix.SYS_PTRACE, 0xffff, 0, 0, 0),
		"process_vm_readv":  raw(unix.SYS_PROCESS_VM_READV, self, 0, 0, 0, 0, 0),
		"kcmp":              raw(unix.SYS_KCMP, self, self, 1, 0, 0),
		"personality":       raw(unix.SYS_PERSONALITY, 0xffffffff),
		"personality exec":  raw(unix.SYS_PERSONALITY, 0x0400000),
		"setuid file":       raw(unix.SYS_FCHMODAT, at, path(file), 0o4755),
		"setuid creation":   closing(unix.SYS_OPENAT, at, path(filepath.Join(dir, "s")), unix.O_CREAT|unix.O_WRONLY, 0o4755),
		"setgid folder":     raw(unix.SYS_FCHMODAT, at, path(dir), 0o2755),
		"device":            raw(unix.SYS_MKNODAT, at, path(filepath.Join(dir, "d")), unix.S_IFCHR|0o600, 0),
		"fifo":              raw(unix.SYS_MKNODAT, at, path(filepath.Join(dir, "p")), unix.S_IFIFO|0o600, 0),
		"memfd":             closing(unix.SYS_MEMFD_CREATE, path("m"), 1),
		"shmget":            raw(unix.SYS_SHMGET, 0, 0, 0),
		"own limits":        raw(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 0, 0),
		"foreign limits":    raw(unix.SYS_PRLIMIT64, self, unix.RLIMIT_NOFILE, 0, 0),
		"no such call":      raw(4000),
	}
	maps.Copy(got, socketAttempts())
	return got
}

func socketAttempts() map[string]int {
	listener, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) // -1 under BareOffline
	defer unix.Close(listener)
	letter := []byte("x")
	addr := &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: 0x0100, Addr: [4]byte{127, 0, 0, 1}}
	return map[string]int{
		"vsock":           madeSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"packet":          madeSocket(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"mptcp":           madeSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"mptcp6":          madeSocket(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"raw":             madeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP),
		"audit":           madeSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		"route":           madeSocket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE),
		"tcp":             madeSocket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0),
		"udp":             madeSocket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP),
		"unix":            madeSocket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0),
		"vsock high bits": closing(unix.SYS_SOCKET, 1<<32|unix.AF_VSOCK, unix.SOCK_STREAM),
		"listen":          raw(unix.SYS_LISTEN, uintptr(listener), 1),
		"fastopen": raw(unix.SYS_SENDTO, uintptr(listener), uintptr(unsafe.Pointer(&letter[0])), 1,
			unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(addr)), 16),
		"fastopen connect": errnoOf(unix.SetsockoptInt(listener, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 0)),
		"nodelay":          errnoOf(unix.SetsockoptInt(listener, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)),
	}
}

func wantAttempts(v Variant) map[string]int {
	want := map[string]int{
		"vsock": eAFNOSUPPORT, "packet": eAFNOSUPPORT, "mptcp": ePROTONOSUPPORT, "mptcp6": ePROTONOSUPPORT, "raw": ePERM,
		"audit": ePROTONOSUPPORT, "route": 0, "tcp": 0, "udp": 0, "unix": 0, "vsock high bits": eAFNOSUPPORT, "listen": 0,
		"fastopen": eOPNOTSUPP, "fastopen connect": eNOPROTOOPT, "nodelay": 0, "clone userns": ePERM, "clone3": eNOSYS,
		"unshare none": 0, "setns": ePERM, "mount": ePERM, "open_tree": ePERM, "keyring": eNOSYS, "add_key": eNOSYS,
		"io_uring": eNOSYS, "openat2": eNOSYS, "userfaultfd": ePERM, "perf": eACCES, "bpf": ePERM, "tiocsti": eIO,
		"tiocsti high bits": eIO, "window size": 0, "ptrace": ePERM, "process_vm_readv": ePERM, "kcmp": ePERM,
		"personality": 0, "personality exec": eINVAL, "setuid file": ePERM, "setuid creation": ePERM, "setgid folder": 0,
		"device": ePERM, "fifo": 0, "memfd": 0, "shmget": int(unix.EINVAL), "own limits": 0, "foreign limits": 0,
		"no such call": eNOSYS,
	}
	switch v {
	case Debug:
		want["ptrace"], want["process_vm_readv"] = int(unix.ESRCH), 0
	case Bare, BareOffline:
		want["unix"], want["udp"], want["listen"] = eAFNOSUPPORT, eACCES, eOPNOTSUPP
		want["shmget"], want["foreign limits"] = eNOSYS, ePERM
	}
	if v == BareOffline {
		// Without a socket there is nothing to set an option on; the filter is asked first where it has a say.
		for _, name := range []string{"tcp", "udp", "raw", "mptcp", "mptcp6"} {
			want[name] = eAFNOSUPPORT
		}
		want["nodelay"] = int(unix.EBADF)
	}
	return want
}

type who struct {
	name string
	uid  uint32
}

// people are both kinds of owner a cell can have. Starting the second one needs root.
var people = []who{{"root", 0}, {"user", 4243}}

func rerun(t testing.TB, mode string, v Variant, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childVariant+"="+string(v))
	return cmd
}

// as runs the command under another uid from a copy of the test binary that it can reach.
func as(t testing.TB, cmd *exec.Cmd, uid uint32) {
	t.Helper()
	if uid == uint32(os.Geteuid()) {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("changing the uid needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "seccomp-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	body, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(copied, body, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Dir = copied, "/"
	cmd.Env = append(cmd.Env, "TMPDIR=/tmp", "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func answer(t testing.TB, cmd *exec.Cmd, into any) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
}

func TestAttempts(t *testing.T) {
	for _, p := range people {
		for _, v := range Variants() {
			t.Run(p.name+"/"+string(v), func(t *testing.T) {
				cmd := rerun(t, "attempts", v)
				as(t, cmd, p.uid)
				var got map[string]int
				answer(t, cmd, &got)
				want := wantAttempts(v)
				if len(got) != len(want) {
					t.Errorf("%d attempts, want %d", len(got), len(want))
				}
				for name, errno := range want {
					if g, ok := got[name]; !ok || g != errno {
						t.Errorf("%s: %v, want %v", name, syscall.Errno(g), syscall.Errno(errno))
					}
				}
			})
		}
	}
}

// TestAttemptsWithoutFilter is the control: what the filter stops goes through, or meets another errno, without it.
func TestAttemptsWithoutFilter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the control needs root: without privileges the kernel refuses by itself")
	}
	var free map[string]int
	answer(t, rerun(t, "attempts", ""), &free)
	// A call nobody has, and arguments the kernel itself refuses, with the filter and without.
	same := map[Variant][]string{
		Native:      {"no such call", "shmget"},
		Debug:       {"no such call", "ptrace", "shmget"},
		Bare:        {"no such call"},
		BareOffline: {"no such call"},
	}
	for _, v := range Variants() {
		var got []string
		for name, errno := range wantAttempts(v) {
			if errno != 0 && free[name] == errno {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, same[v]) {
			t.Errorf("%s: no difference without the filter for %q, want %q", v, got, same[v])
		}
	}
}

func TestEveryThread(t *testing.T) {
	var got threadReport
	answer(t, rerun(t, "threads", Native), &got)
	if want := []int{ePERM, ePERM, ePERM, ePERM}; !slices.Equal(got.Errnos, want) {
		t.Errorf("unshare on threads older than the filter: errnos %v, want %v", got.Errnos, want)
	}
	if got.Threads < 5 || got.Filtered != got.Threads {
		t.Errorf("%d of %d threads have the filter and no_new_privs", got.Filtered, got.Threads)
	}
	if os.Geteuid() != 0 {
		return
	}
	var free threadReport
	answer(t, rerun(t, "threads", ""), &free)
	if want := []int{0, 0, 0, 0}; !slices.Equal(free.Errnos, want) || free.Filtered != 0 {
		t.Errorf("control: errnos %v, want %v; %d threads filtered", free.Errnos, want, free.Filtered)
	}
}

// TestThreadWithOtherFilter shows that a thread TSYNC cannot reach is an error.
func TestThreadWithOtherFilter(t *testing.T) {
	if out, err := rerun(t, "conflict", "").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// refusedByKernel makes every call the interpreter says is refused whatever its arguments, and returns the errnos.
func refusedByKernel(v Variant) map[uint32]int {
	prog, err := Program(v, runtime.GOARCH)
	if err != nil {
		return nil
	}
	got := map[uint32]int{}
	for nr := range uint32(1024) {
		if _, refused := constant(prog, nr); refused {
			got[nr] = raw(uintptr(nr), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0))
		}
	}
	return got
}

// constant returns the errno of a call that is refused with no arguments and with all bits set.
func constant(prog []Instruction, nr uint32) (uint16, bool) {
	d := Data{Nr: nr, Arch: auditArch[runtime.GOARCH]}
	a, err := Verdict(prog, d)
	if err != nil {
		return 0, false
	}
	for i := range d.Args {
		d.Args[i] = ^uint64(0)
	}
	b, err := Verdict(prog, d)
	if err != nil || a != b {
		return 0, false
	}
	return a.Errno()
}

func TestKernelAgreesWithInterpreter(t *testing.T) {
	for _, v := range Variants() {
		prog := program(t, v, runtime.GOARCH)
		var got map[uint32]int
		answer(t, rerun(t, "refused", v), &got)
		if len(got) < 600 {
			t.Errorf("%s: %d calls compared", v, len(got))
		}
		for nr, errno := range got {
			if want, _ := constant(prog, nr); errno != int(want) {
				t.Errorf("%s: call %d: kernel %v, interpreter %v", v, nr, syscall.Errno(errno), syscall.Errno(want))
			}
		}
	}
}

func TestLayout(t *testing.T) {
	if a, b := unsafe.Sizeof(Instruction{}), unsafe.Sizeof(unix.SockFilter{}); a != b || a != instructionSize {
		t.Errorf("Instruction has %d bytes, struct sock_filter %d", a, b)
	}
}

// BenchmarkLoad reports the time of Load itself, in a fresh process for each round.
func BenchmarkLoad(b *testing.B) {
	var total time.Duration
	for b.Loop() {
		var ns int64
		answer(b, rerun(b, "benchmark", Native), &ns)
		total += time.Duration(ns)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/load")
}
