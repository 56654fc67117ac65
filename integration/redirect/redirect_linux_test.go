package redirect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce/redirect"
	"coworker/integration/house/testuser"
	"coworker/netproxy/control"
	"coworker/netproxy/dns"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/transparent"
)

// The walls may not import the proxy, so both write the same numbers down.
func TestSameNumbers(t *testing.T) {
	for name, pair := range map[string][2]int{
		"proxy4": {redirect.SocketProxy4, control.FDProxy4}, "transparent4": {redirect.SocketTransparent4, control.FDTransparent4},
		"name udp4": {redirect.SocketNameUDP4, control.FDNameUDP4}, "name tcp4": {redirect.SocketNameTCP4, control.FDNameTCP4},
		"proxy6": {redirect.SocketProxy6, control.FDProxy6}, "transparent6": {redirect.SocketTransparent6, control.FDTransparent6},
		"name udp6": {redirect.SocketNameUDP6, control.FDNameUDP6}, "name tcp6": {redirect.SocketNameTCP6, control.FDNameTCP6},
	} {
		if pair[0]+control.FDControl+1 != pair[1] {
			t.Errorf("%s: socket %d, descriptor %d", name, pair[0], pair[1])
		}
	}
	if redirect.Synthetic4 != dns.Range4 || redirect.Synthetic6 != dns.Range6 {
		t.Errorf("ranges: %s %s, %s %s", redirect.Synthetic4, redirect.Synthetic6, dns.Range4, dns.Range6)
	}
	v4, v6, ok := dns.NewNames().For(mustHost(t, "first.example"))
	if !ok || v4 != redirect.Own4.Next() || v6 != redirect.Own6.Next() {
		t.Errorf("the first name gets %s %s, want the addresses after lo's own", v4, v6)
	}
}

func mustHost(t *testing.T, name string) hostmatch.Host {
	t.Helper()
	h, err := hostmatch.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const jobVariable = "COWORKER_REDIRECT_JOB"

const (
	literal = "203.0.113.7"
	search  = "search corp.example\nnameserver 127.0.0.53\noptions timeout:2 attempts:1\n"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(jobVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := json.NewEncoder(os.Stdout).Encode(inside(dir)); err != nil {
		os.Exit(111)
	}
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// inside is a session's programs. Its answers are by name of the attempt.
func inside(dir string) map[string]string {
	must(loopbackUp())
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for name, text := range map[string]string{"resolv.conf": search, "nsswitch.conf": "hosts: dns\n"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		target, err := filepath.EvalSymlinks("/etc/" + name)
		must(err)
		must(unix.Mount(filepath.Join(dir, name), target, "", unix.MS_BIND, ""))
	}
	notes, err := redirect.Install([]netip.Addr{netip.MustParseAddr(literal)})
	must(err)
	files, err := redirect.Listen(notes.IPv6)
	must(err)
	must(redirect.Verify(notes))
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	must(unix.Sendmsg(3, []byte{byte(len(fds))}, unix.UnixRights(fds...), nil, 0))
	for _, f := range files {
		f.Close()
	}
	if n, err := unix.Read(3, make([]byte, 1)); n != 1 {
		panic(fmt.Sprintf("the parent does not serve: %v", err))
	}
	return map[string]string{
		"getent4": run("getent", "ahostsv4", "github.com"), "getent6": run("getent", "ahostsv6", "github.com"),
		"getent short": run("getent", "ahostsv4", "git"), "getent refused": run("getent", "hosts", "evil.example"),
		"getent reverse": run("getent", "hosts", "198.18.0.2"),
		"dial by name":   dial("github.com:443"), "dial by another name": dial("registry.example.com:80"), "dial a port that no rule has": dial("github.com:22"),
		"dial refused name": dial("evil.example:443"), "dial literal": dial(literal + ":22"), "dial other literal": dial("203.0.113.8:22"),
		"dial an address of no name": dial("198.18.77.77:443"), "dial IPv6": dial("[fdc0:c0c0:c0c0::2]:443"),
		"names over TCP": overTCP(),
	}
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

// run is the first field of the first line of what a program says, or how it exits.
func run(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("exit %d", exit.ExitCode())
	}
	must(err)
	return strings.Join(strings.Fields(strings.SplitN(string(out), "\n", 2)[0]), " ")
}

func dial(to string) string {
	c, err := net.DialTimeout("tcp", to, 10*time.Second)
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound {
		return "not found"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	must(err)
	defer c.Close()
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	must(err)
	return string(buf[:n])
}

func overTCP() string {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", "[::1]:53")
	}}
	got, err := r.LookupNetIP(context.Background(), "ip4", "github.com")
	must(err)
	return fmt.Sprint(got)
}

// outside serves the sockets as the proxy process does.
type outside struct {
	resolver *dns.Resolver
	udp      []net.PacketConn
	names    []net.Listener
	taken    []net.Listener
	rest     []net.Listener
	mu       sync.Mutex
	records  []flow.Record
}

func newOutside(t *testing.T) *outside {
	rules, err := hostmatch.ParseRules([]string{"github.com", "registry.example.com:80", literal + ":22"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{}
	o.resolver = &dns.Resolver{Names: dns.NewNames(), IPv6: true,
		Decide: func(h hostmatch.Host) dns.Decision {
			d := hostmatch.MatchName(rules, h)
			return dns.Decision{Allow: d.Verdict == hostmatch.Allow, Reason: d.Reason, Needed: d.Needed, Rule: d.Rule}
		},
		Report: func(r flow.Record) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.records = append(o.records, r)
		},
	}
	return o
}

func (o *outside) receive(t *testing.T, fd int) {
	t.Helper()
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(8*4))
	_, oob, _, _, err := unix.Recvmsg(fd, data, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages: %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 8 {
		t.Fatalf("%d sockets: %v", len(fds), err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		switch i {
		case redirect.SocketNameUDP4, redirect.SocketNameUDP6:
			p, err := net.FilePacketConn(f)
			if err != nil {
				t.Fatal(err)
			}
			o.udp = append(o.udp, p)
		case redirect.SocketNameTCP4, redirect.SocketNameTCP6:
			o.names = append(o.names, listener(t, f))
		case redirect.SocketTransparent4, redirect.SocketTransparent6:
			o.taken = append(o.taken, listener(t, f))
		default:
			o.rest = append(o.rest, listener(t, f))
		}
		f.Close()
	}
}

func listener(t *testing.T, f *os.File) net.Listener {
	t.Helper()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve answers until ctx ends, and returns when nothing of it is left.
func (o *outside) serve(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, l := range o.rest {
		defer l.Close()
	}
	for _, l := range o.taken {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(o.describe(c.(*net.TCPConn))))
				c.Close()
			}
		})
	}
	return o.resolver.Serve(ctx, o.udp, o.names)
}

func (o *outside) describe(c *net.TCPConn) string {
	to, err := transparent.OriginalDestination(c)
	if err != nil {
		return err.Error()
	}
	if h, ok := o.resolver.Names.Host(to.Addr()); ok {
		return h.Authority(to.Port())
	}
	if dns.IsSynthetic(to.Addr()) {
		return "no name"
	}
	return to.String()
}

func TestPrograms(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			got, records := session(t, u)
			for name, want := range map[string]string{
				"getent4": "198.18.0.2 STREAM github.com", "getent6": "fdc0:c0c0:c0c0::2 STREAM github.com", "getent short": "exit 2", "getent refused": "exit 2",
				"getent reverse": "198.18.0.2 github.com",
				"dial by name":   "github.com:443", "dial by another name": "registry.example.com:80", "dial a port that no rule has": "github.com:22",
				"dial refused name": "not found", "dial literal": literal + ":22", "dial other literal": "ENETUNREACH",
				"dial an address of no name": "no name", "dial IPv6": "github.com:443", "names over TCP": "[198.18.0.2]",
			} {
				if got[name] != want {
					t.Errorf("%s: %q, want %q", name, got[name], want)
				}
			}
			refused := map[string]bool{}
			for _, r := range records {
				refused[r.Host] = refused[r.Host] || r.Verdict == flow.Deny
			}
			for _, name := range []string{"evil.example", "git", "git.corp.example"} {
				if !refused[name] {
					t.Errorf("no record of the refused name %s", name)
				}
			}
			if refused["github.com"] {
				t.Errorf("an allowed name was refused")
			}
		})
	}
}

func session(t *testing.T, u testuser.User) (map[string]string, []flow.Record) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	end := os.NewFile(uintptr(pair[1]), "inside")
	dir := u.Dir(t)
	cmd := u.Command(t.Context(), dir, "/proc/self/exe")
	cmd.Env = append(cmd.Env, jobVariable+"="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = []*os.File{end}
	out, errs := &strings.Builder{}, &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, errs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: u.UID, HostID: u.UID, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: u.GID, HostID: u.GID, Size: 1}}
	cmd.SysProcAttr.GidMappingsEnableSetgroups = os.Geteuid() == 0
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	o := newOutside(t)
	o.receive(t, pair[0])
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- o.serve(ctx) }()
	_, werr := unix.Write(pair[0], []byte{1})
	err = cmd.Wait()
	cancel()
	if serr := <-served; errors.Join(err, werr, serr) != nil {
		t.Fatalf("%v %v %v\n%s", err, werr, serr, errs)
	}
	got := map[string]string{}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return got, o.records
}
