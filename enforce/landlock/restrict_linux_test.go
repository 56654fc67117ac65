package landlock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

// A ruleset cannot be taken off again, so each test starts the test binary anew with a job on its environment.
const jobVariable = "COWORKER_LANDLOCK_TEST"

const threads = 4

type job struct {
	Mode     string
	Restrict bool // false: the control
	Rules    Rules
	Root     string
	Abstract string // socket outside
	Target   int    // process outside, of the same uid
	Open     int    // TCP port that the rules allow
	Closed   int    // TCP port that they do not
	Errno    int
}

type report struct {
	Applied  Applied
	Err      string
	Class    string
	Attempts []map[string]int // by thread
	Nanos    int64
}

func TestMain(m *testing.M) {
	text := os.Getenv(jobVariable)
	if text == "" {
		os.Exit(m.Run())
	}
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
	switch j.Mode {
	case "version":
		return j.version()
	case "flags":
		return j.flags()
	}
	ask := lockedThreads(j)
	if j.Restrict {
		start := time.Now()
		applied, err := Restrict(j.Rules)
		r.Nanos = time.Since(start).Nanoseconds()
		r.Applied = applied
		if err != nil {
			r.Err, r.Class = err.Error(), class(err)
		}
	}
	for _, c := range ask {
		c <- nil
		r.Attempts = append(r.Attempts, <-c)
	}
	return r
}

func class(err error) string {
	for name, target := range map[string]error{"not built": ErrNotBuilt, "disabled": ErrDisabled, "tcp": ErrNoTCP,
		"rule": ErrRule, "log": ErrNoLog, "not enforced": ErrNotEnforced, "missing": os.ErrNotExist} {
		if errors.Is(err, target) {
			return name
		}
	}
	return "other"
}

// version makes landlock_create_ruleset fail with an errno, by a filter of three instructions, and asks for the ABI.
func (j job) version() (r report) {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_LANDLOCK_CREATE_RULESET},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(j.Errno)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err != nil {
		return report{Err: err.Error(), Class: "filter"}
	}
	r.Applied, err = Restrict(Rules{})
	r.Err, r.Class = fmt.Sprint(err), class(err)
	return r
}

// flags makes landlock_restrict_self fail with E2BIG unless its flags about the log are Errno, and restricts.
func (j job) flags() (r report) {
	const logging = 7 // the flags about the log; newer kernels have others beside them
	const second = 24 // where struct seccomp_data has the low half of the second argument
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: unix.SYS_LANDLOCK_RESTRICT_SELF},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: second},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: logging},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: uint32(j.Errno)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.E2BIG)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return report{Err: errno.Error(), Class: "filter"}
	}
	var err error
	if r.Applied, err = Restrict(j.Rules); err != nil {
		r.Err, r.Class = err.Error(), class(err)
	}
	return r
}

// lockedThreads starts threads that exist before the ruleset and make their attempts after it.
func lockedThreads(j job) []chan map[string]int {
	var ask []chan map[string]int
	for i := range threads {
		c := make(chan map[string]int)
		ask = append(ask, c)
		go func() {
			runtime.LockOSThread()
			<-c
			c <- j.attempts(fmt.Sprintf("%d", i))
		}()
	}
	return ask
}

func errnoOf(err error) int {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return int(errno)
	case err != nil:
		return -1
	}
	return 0
}

func opened(path string, flags int) int {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return errnoOf(err)
}

func ioctl(path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
	return errnoOf(err)
}

func connect(family int, to unix.Sockaddr) int {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	return errnoOf(unix.Connect(fd, to))
}

func bindTCP() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	return errnoOf(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
}

// attempts are made on the calling thread, each in the files of that thread.
func (j job) attempts(id string) map[string]int {
	in := func(parts ...string) string { return filepath.Join(append([]string{j.Root}, parts...)...) }
	ro, rw, out := in("ro", id), in("rw", id), in("out", id)
	loopback := func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} }
	got := map[string]int{
		"read ro":         opened(ro+"/file", unix.O_RDONLY),
		"list ro":         opened(ro, unix.O_RDONLY|unix.O_DIRECTORY),
		"read out":        opened(out+"/file", unix.O_RDONLY),
		"list out":        opened(out, unix.O_RDONLY|unix.O_DIRECTORY),
		"read by dotdot":  opened(ro+"/../../out/"+id+"/file", unix.O_RDONLY),
		"read by symlink": opened(rw+"/link", unix.O_RDONLY),
		"read by root":    opened("/proc/self/root"+out+"/file", unix.O_RDONLY),
		"write ro":        opened(ro+"/file", unix.O_WRONLY),
		"write rw":        opened(rw+"/file", unix.O_RDWR),
		"truncate ro":     errnoOf(unix.Truncate(ro+"/file", 0)),
		"truncate rw":     errnoOf(unix.Truncate(rw+"/file", 0)),
		"create ro":       opened(ro+"/new", unix.O_CREAT|unix.O_WRONLY),
		"create out":      opened(out+"/new", unix.O_CREAT|unix.O_WRONLY),
		"create rw":       opened(rw+"/new", unix.O_CREAT|unix.O_WRONLY),
		"mkdir rw":        errnoOf(unix.Mkdir(rw+"/dir", 0o700)),
		"symlink rw":      errnoOf(unix.Symlink("x", rw+"/made")),
		"fifo rw":         errnoOf(unix.Mkfifo(rw+"/fifo", 0o600)),
		"rename refer rw": errnoOf(unix.Rename(rw+"/new", rw+"/sub/new")),
		"link refer rw":   errnoOf(unix.Link(rw+"/sub/new", rw+"/again")),
		"unlink rw":       errnoOf(unix.Unlink(rw + "/again")),
		"rmdir rw":        errnoOf(unix.Rmdir(rw + "/dir")),
		"rename out":      errnoOf(unix.Rename(rw+"/sub/new", out+"/moved")),
		"link in from ro": errnoOf(unix.Link(ro+"/file", rw+"/stolen")),
		"link in":         errnoOf(unix.Link(out+"/file", rw+"/taken")),
		"unlink out":      errnoOf(unix.Unlink(out + "/victim")),
		"stat out":        errnoOf(unix.Stat(out, new(unix.Stat_t))),
		"chmod out":       errnoOf(unix.Chmod(out+"/file", 0o640)),
		"single file":     opened(in("single"), unix.O_RDWR),
		"ioctl device":    ioctl("/dev/null"),
		"ioctl no device": ioctl("/dev/zero"),
		"abstract socket": connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: j.Abstract}),
		"signal":          errnoOf(unix.Kill(j.Target, 0)),
		"signal self":     errnoOf(unix.Kill(os.Getpid(), 0)),
		"tcp open port":   connect(unix.AF_INET, loopback(j.Open)),
		"tcp closed port": connect(unix.AF_INET, loopback(j.Closed)),
		"tcp bind":        bindTCP(),
		"execute ro":      errnoOf(exec.Command(in("ro", "true")).Run()),
		"execute out":     errnoOf(exec.Command(in("out", "true")).Run()),
	}
	if os.Geteuid() == 0 {
		got["device node"] = errnoOf(unix.Mknod(rw+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	return got
}

const (
	eACCES = int(unix.EACCES)
	ePERM  = int(unix.EPERM)
	eXDEV  = int(unix.EXDEV)
	eNOTTY = int(unix.ENOTTY)
)

// stopped lists what the wall refuses, from which ABI on. Everything else must work as in the control.
var stopped = map[string]struct{ errno, abi int }{
	"read out": {eACCES, 1}, "list out": {eACCES, 1}, "read by dotdot": {eACCES, 1}, "read by symlink": {eACCES, 1},
	"read by root": {eACCES, 1}, "write ro": {eACCES, 1}, "truncate ro": {eACCES, 3}, "create ro": {eACCES, 1},
	"create out": {eACCES, 1}, "rename out": {eACCES, 1}, "link in from ro": {eXDEV, 1}, "link in": {eXDEV, 1},
	"unlink out": {eACCES, 1}, "ioctl no device": {eACCES, 5}, "abstract socket": {ePERM, 6}, "signal": {ePERM, 6},
	"execute out": {eACCES, 1}, "device node": {eACCES, 1},
}

var stoppedTCP = map[string]int{"tcp closed port": eACCES, "tcp bind": eACCES}

// stage is what exists outside of the wall.
type stage struct {
	job
	uid uint32
}

func setUp(t testing.TB, uid uint32) *stage {
	t.Helper()
	if os.Geteuid() != 0 && int(uid) != os.Geteuid() {
		t.Skip("changing the uid needs root")
	}
	root, err := os.MkdirTemp("/tmp", "landlock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	put := func(name string, content []byte) {
		path := filepath.Join(root, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o755))
	}
	harmless, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(harmless)
	errs = append(errs, err)
	put("ro/self", body)
	put("ro/true", program)
	put("out/true", program)
	put("single", nil)
	for i := range threads {
		put(fmt.Sprintf("ro/%d/file", i), []byte("x"))
		put(fmt.Sprintf("rw/%d/file", i), []byte("x"))
		put(fmt.Sprintf("rw/%d/sub/file", i), []byte("x"))
		put(fmt.Sprintf("out/%d/file", i), []byte("x"))
		put(fmt.Sprintf("out/%d/victim", i), []byte("x"))
		errs = append(errs, os.Symlink(fmt.Sprintf("%s/out/%d/file", root, i), fmt.Sprintf("%s/rw/%d/link", root, i)))
	}
	errs = append(errs, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, int(uid), int(uid)))
	}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s := &stage{uid: uid}
	s.Root, s.Abstract = root, "@"+filepath.Base(root)
	s.Open, s.Closed = listen(t, "tcp", "127.0.0.1:0"), listen(t, "tcp", "127.0.0.1:0")
	listen(t, "unix", s.Abstract)
	s.Target = s.bystander(t)
	s.Rules = Rules{
		ReadOnly: append(Paths(root+"/ro", "/usr"), Path{Name: root + "/absent", Optional: true},
			Path{Name: "/lib", Optional: true}, Path{Name: "/lib64", Optional: true}), // for true, and a test binary with cgo
		ReadWrite: Paths(root+"/rw", root+"/single", "/dev/zero"),
		Devices:   Paths("/dev/null"),
	}
	return s
}

func listen(t testing.TB, network, address string) (port int) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

func (s *stage) credential() *syscall.SysProcAttr {
	if int(s.uid) == os.Geteuid() {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}
}

// bystander is a process outside of the domain that the child's uid may signal.
func (s *stage) bystander(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Dir, cmd.SysProcAttr = "/", s.credential()
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); cmd.Wait() })
	return cmd.Process.Pid
}

func (s *stage) run(t testing.TB, j job) report {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(s.Root, "ro", "self"))
	cmd.Dir, cmd.SysProcAttr = "/", s.credential()
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v\n%s%s", err, out, stderr.Bytes())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return r
}

var uids = []uint32{0, 4243}

func needABI(t testing.TB) int {
	t.Helper()
	abi, err := ABI()
	if err != nil {
		t.Fatalf("these tests need a kernel with Landlock; older ones are covered in integration/vm: %v", err)
	}
	return usable(abi)
}

// TestControl shows that every attempt works without the wall.
func TestControl(t *testing.T) {
	for _, uid := range uids {
		s := setUp(t, uid)
		for i, attempts := range s.run(t, s.job).Attempts {
			for name, errno := range attempts {
				if want := map[bool]int{true: eNOTTY}[strings.HasPrefix(name, "ioctl")]; errno != want {
					t.Errorf("uid %d, thread %d, %s: %v, want %v", uid, i, name, syscall.Errno(errno), syscall.Errno(want))
				}
			}
		}
	}
}

func TestRestrict(t *testing.T) {
	abi := needABI(t)
	for _, uid := range uids {
		for _, tcp := range []bool{false, true} {
			if tcp && abi < tcpABI {
				continue // TestTCPNeedsABI
			}
			t.Run(fmt.Sprintf("uid %d tcp %v", uid, tcp), func(t *testing.T) {
				s := setUp(t, uid)
				j := s.job
				j.Restrict, j.Rules.RestrictTCP = true, tcp
				if tcp {
					j.Rules.ConnectTCP = []uint16{uint16(j.Open), uint16(j.Open)}
				}
				r := s.run(t, j)
				if r.Err != "" {
					t.Fatal(r.Err)
				}
				checkApplied(t, r.Applied, abi, j)
				if len(r.Attempts) != threads {
					t.Fatalf("%d threads answered, want %d", len(r.Attempts), threads)
				}
				for i, attempts := range r.Attempts {
					checkAttempts(t, i, attempts, abi, tcp)
				}
			})
		}
	}
}

func checkAttempts(t *testing.T, thread int, attempts map[string]int, abi int, tcp bool) {
	t.Helper()
	for name, got := range attempts {
		want := map[bool]int{true: eNOTTY}[strings.HasPrefix(name, "ioctl")]
		if s, ok := stopped[name]; ok && abi >= s.abi {
			want = s.errno
		}
		if errno, ok := stoppedTCP[name]; ok && tcp {
			want = errno
		}
		if abi < 2 && strings.Contains(name, "refer") {
			want = eXDEV
		}
		// A rename or link that crosses the border may be named either way (the kernel's documentation says so).
		if got != want && !(slices.Contains([]int{eXDEV, eACCES}, want) && (got == eXDEV || got == eACCES)) {
			t.Errorf("thread %d, %s: %v, want %v", thread, name, syscall.Errno(got), syscall.Errno(want))
		}
	}
}

func checkApplied(t *testing.T, a Applied, abi int, j job) {
	t.Helper()
	if a.Used != abi || a.ABI < a.Used {
		t.Errorf("ABI %d used %d, want %d", a.ABI, a.Used, abi)
	}
	if _, names := upTo(fsRights, abi); !slices.Equal(a.HandledFS, names) {
		t.Errorf("handled %v, want %v", a.HandledFS, names)
	}
	if (len(a.Network) > 0) != j.Rules.RestrictTCP {
		t.Errorf("network rights %v with RestrictTCP %v", a.Network, j.Rules.RestrictTCP)
	}
	if (len(a.Scopes) == 2) != (abi >= scopeABI) {
		t.Errorf("scopes %v", a.Scopes)
	}
	if absent := j.Root + "/absent"; !slices.Contains(a.Skipped, absent) {
		t.Errorf("skipped %q, want %q among them", a.Skipped, absent)
	}
	if !a.Proven && abi >= scopeABI && !cgo {
		t.Error("not proven")
	}
}

// TestErrorsChangeNothing: a bad rule is an error, and the process is as free as before.
func TestErrorsChangeNothing(t *testing.T) {
	needABI(t)
	rows := map[string]struct {
		change func(*stage, *Rules)
		class  string
	}{
		"missing":       {func(s *stage, r *Rules) { r.ReadOnly = append(r.ReadOnly, Path{Name: s.Root + "/absent"}) }, "missing"},
		"not a device":  {func(s *stage, r *Rules) { r.Devices = Paths(s.Root + "/single") }, "rule"},
		"below a file":  {func(s *stage, r *Rules) { r.ReadOnly = []Path{{Name: s.Root + "/single/x", Optional: true}} }, "other"},
		"useless ports": {func(s *stage, r *Rules) { r.BindTCP = []uint16{80} }, "rule"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := setUp(t, uids[0])
			j := s.job
			j.Restrict = true
			row.change(s, &j.Rules)
			r := s.run(t, j)
			if r.Class != row.class {
				t.Errorf("%s (%s), want class %s", r.Err, r.Class, row.class)
			}
			if r.Attempts[0]["read out"] != 0 || r.Attempts[0]["signal"] != 0 {
				t.Error("the process is restricted after an error")
			}
			if !strings.Contains(r.Err, "/") && row.class != "rule" {
				t.Errorf("%q does not name the path", r.Err)
			}
		})
	}
}

func TestAbsentAndDisabledDiffer(t *testing.T) {
	s := setUp(t, uids[0])
	for errno, want := range map[syscall.Errno]string{unix.ENOSYS: "not built", unix.EOPNOTSUPP: "disabled", unix.EPERM: "other"} {
		r := s.run(t, job{Mode: "version", Errno: int(errno)})
		if r.Class != want || r.Applied.Used != 0 {
			t.Errorf("%v: %s (%s), want %s", errno, r.Class, r.Err, want)
		}
	}
}

// TestTCPNeedsABI and the canary's failure are shown on the parts, because this kernel has the ABI.
func TestTCPNeedsABI(t *testing.T) {
	rules := Rules{RestrictTCP: true}
	for used, want := range map[int]error{3: ErrNoTCP, 4: nil, newestABI: nil} {
		if _, err := rules.config(&Applied{Used: used}); !errors.Is(err, want) {
			t.Errorf("ABI %d: %v, want %v", used, err, want)
		}
	}
}

// TestCanaryNoticesFreedom: the proof fails in a process that is not restricted.
func TestCanaryNoticesFreedom(t *testing.T) {
	c, err := newCanary(scopeABI)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if proven, err := c.verify(); proven || !errors.Is(err, ErrNotEnforced) {
		t.Errorf("proven %v, %v, want ErrNotEnforced", proven, err)
	}
	none, err := newCanary(scopeABI - 1)
	if proven, again := none.verify(); err != nil || again != nil || proven {
		t.Errorf("without scopes: proven %v, %v, %v", proven, err, again)
	}
}

// BenchmarkRestrict reports the time of Restrict itself, in a fresh process each round.
func BenchmarkRestrict(b *testing.B) {
	needABI(b)
	s := setUp(b, uint32(os.Geteuid()))
	j := s.job
	j.Restrict = true
	var total int64
	for b.Loop() {
		total += s.run(b, j).Nanos
	}
	b.ReportMetric(float64(total)/float64(b.N), "ns/restrict")
}
