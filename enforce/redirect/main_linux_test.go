package redirect

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A namespace belongs to a process, so each test starts the test binary anew with a job in its environment, in a user and
// a network namespace of its own.
const jobVariable = "COWORKER_REDIRECT_TEST"

const testUser = 4243 // needs no entry in /etc/passwd

type job struct {
	Literals  []string
	NoIPv6    bool
	NoInstall bool
	Tracked   bool   // as on a kernel without notrack
	Deny      int    // errno of socket(AF_NETLINK, …, NETLINK_NETFILTER)
	Drop      bool   // gives up CAP_NET_ADMIN first
	Tamper    string // what is changed between Install and Verify
	Serve     bool   // sends the sockets to the parent, then attempts
}

type report struct {
	Notes          Notes
	Install        string
	Missing        bool
	Listen, Verify string
	Empty          string // Verify of a namespace where nothing was made
	Micros         int64  // Install and Listen
	Tracked        int    // connections that the kernel tracks more after one on loopback
	Attempts       map[string]string
}

func TestMain(m *testing.M) {
	text := os.Getenv(jobVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // for the filter
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(j.run()); err != nil {
		os.Exit(111)
	}
	os.Exit(0)
}

func (j job) run() (r report) {
	var literals []netip.Addr
	for _, l := range j.Literals {
		literals = append(literals, netip.MustParseAddr(l))
	}
	must(loopbackUp())
	if j.NoIPv6 {
		must(os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0))
	}
	if j.Deny != 0 {
		must(denyNetfilter(j.Deny))
	}
	if j.Drop {
		header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		data[0].Effective, data[0].Permitted = 1<<unix.CAP_NET_BIND_SERVICE, 1<<unix.CAP_NET_BIND_SERVICE
		must(unix.Capset(&header, &data[0]))
	}
	start := time.Now()
	var err error
	if !j.NoInstall {
		r.Notes, err = install(literals, !j.Tracked)
	}
	files, listenErr := Listen(r.Notes.IPv6)
	r.Micros = time.Since(start).Microseconds()
	var missing *MissingError
	r.Install, r.Missing, r.Listen = text(err), asMissing(err, &missing), text(listenErr)
	if err := tamper(j.Tamper); err != nil {
		panic(fmt.Sprintf("%s: %v", j.Tamper, err))
	}
	if !j.NoInstall && r.Install == "" && j.Tamper == "" {
		r.Tracked = trackedByLoopback()
	}
	r.Verify, r.Empty = text(Verify(r.Notes)), text(Verify(Notes{Mode: ModeNone}))
	if j.Serve {
		send(files)
		r.Attempts = attempts()
	}
	return r
}

// trackedByLoopback connects to a server of its own.
func trackedByLoopback() int {
	count := func() (n int) {
		data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		must(err)
		_, err = fmt.Sscan(string(data), &n)
		must(err)
		return n
	}
	before := count()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(err)
	defer c.Close()
	return count() - before
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

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

// denyNetfilter makes the calling thread's kernel one without nf_tables.
func denyNetfilter(errno int) error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	filter := []unix.SockFilter{ // struct seccomp_data: nr at 0, the low half of args[0] at 16, of args[2] at 32
		load(0), unless(unix.SYS_SOCKET, 5),
		load(16), unless(unix.AF_NETLINK, 3),
		load(32), unless(unix.NETLINK_NETFILTER, 1),
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// send passes the sockets to the parent and waits until it serves them.
func send(files []*os.File) {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	must(unix.Sendmsg(3, []byte{byte(len(fds))}, unix.UnixRights(fds...), nil, 0))
	for _, f := range files {
		f.Close()
	}
	n, err := unix.Read(3, make([]byte, 1))
	if n != 1 || err != nil {
		panic(fmt.Sprintf("the parent does not serve: %d %v", n, err))
	}
}

// spawn runs a job as uid in new namespaces with the capabilities that the keeper has. serve gets the parent's end of the
// socket that is the child's descriptor 3, and returns before the job is waited for.
func spawn(t *testing.T, uid int, j job, caps []uintptr, serve func(fd int)) report {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inside := os.NewFile(uintptr(pair[1]), "inside")
	defer unix.Close(pair[0])
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	// The race detector waits a second before each exit by default.
	cmd.Env = append(os.Environ(), jobVariable+"="+string(data), "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = []*os.File{inside}
	out, errs := &strings.Builder{}, &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, errs
	id := []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: id, GidMappings: []syscall.SysProcIDMap{{ContainerID: gid(uid), HostID: gid(uid), Size: 1}}, AmbientCaps: caps,
		Pdeathsig: syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid(uid)), Groups: []uint32{}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start in new namespaces: %v", err)
	}
	inside.Close()
	if serve != nil {
		serve(pair[0])
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("job: %v\n%s", err, errs)
	}
	var r report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("report: %v\n%s", err, out)
	}
	return r
}

func gid(uid int) int {
	if uid == os.Geteuid() {
		return os.Getegid()
	}
	return uid
}

// each runs a test as root and as somebody without rights, or as the one who runs the suite.
func each(t *testing.T, test func(t *testing.T, uid int)) {
	users := map[string]int{"as the caller": os.Geteuid()}
	if os.Geteuid() == 0 {
		users["unprivileged"] = testUser
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) { test(t, uid) })
	}
}

var keeperCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
