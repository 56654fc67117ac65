package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/landlock"
	"coworker/enforce/seccomp"
)

const (
	setupEnv  = "PROBE_TEST_SETUP" // file with the Setup: run the battery and print the result
	canaryEnv = "PROBE_TEST_CANARY"
	secret    = "canary-4f1d9c"
)

// The battery wants the main thread, which only a goroutine locked in an init function keeps.
func init() {
	if os.Getenv(setupEnv) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	file := os.Getenv(setupEnv)
	if file == "" {
		os.Exit(m.Run())
	}
	if err := runBattery(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runBattery(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s Setup
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if err := raise(s); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Run(context.Background(), s))
}

// raise puts up the walls that a process can put round itself, as the environment asks.
func raise(s Setup) error {
	if os.Getenv("PROBE_TEST_PDEATHSIG") != "" {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	if os.Getenv("PROBE_TEST_DUMPABLE") != "" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	if os.Getenv("PROBE_TEST_LANDLOCK") != "" {
		rules := landlock.Rules{
			ReadOnly:    landlock.Paths("/usr", "/bin", "/lib", "/lib64", "/proc", s.Spec.Trees[1].Path),
			ReadWrite:   landlock.Paths(s.Spec.Workspace, s.Targets.Scratch),
			Devices:     landlock.Paths("/dev/null", "/dev/urandom", "/dev/ptmx", "/dev/pts"),
			RestrictTCP: s.Backend == enforce.Bare,
		}
		if _, err := landlock.Restrict(rules); err != nil {
			return err
		}
	}
	if v := os.Getenv("PROBE_TEST_SECCOMP"); v != "" {
		return seccomp.Load(seccomp.Variant(v))
	}
	return nil
}

// host is a stand-in for the machine: canaries of every kind, in a network namespace of its own
// so that nothing that a probe sends can leave it. It needs root.
type host struct {
	dir   string
	exe   string
	setup Setup
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test makes network namespaces and changes ids: run it as root")
	}
	dir, err := os.MkdirTemp("/tmp", "probe")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	ownNetwork(t)
	h := &host{dir: dir, exe: filepath.Join(dir, "battery")}
	copyFile(t, "/proc/self/exe", h.exe)
	h.files(t)
	h.canaries(t)
	return h
}

// ownNetwork moves this thread into a new network namespace with a route that leads nowhere. The
// thread is not unlocked, so it ends with the test.
func ownNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, args := range []string{
		"link set lo up", "link add nowhere type veth peer name end", "link set end up", "link set nowhere up", "addr add 198.51.100.1/24 dev nowhere",
		"-6 addr add fd00::1/64 dev nowhere nodad", "route add default dev nowhere", "-6 route add default dev nowhere",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
}

// files makes a home with secrets, a workspace, a read-only tree and the scratch repository.
func (h *host) files(t *testing.T) {
	t.Helper()
	home, work, docs, scratch := h.path("home"), h.path("work"), h.path("docs"), h.path("scratch")
	write(t, home, ".ssh/id_ed25519", "key")
	write(t, home, "state/canary", secret)
	write(t, work, ".git/config", "[core]\n")
	write(t, work, ".git/hooks/pre-commit", "#!/bin/sh\n")
	write(t, work, ".mcp.json", "{}")
	write(t, work, ".env", secret)
	write(t, work, "secrets/key", secret)
	write(t, docs, "a.txt", "text")
	for _, f := range ScratchFiles(secret) {
		write(t, scratch, f.Path, string(f.Data))
	}
	ids := enforce.Identity{UID: 4243, GID: 4243, Name: "tester", Home: home}
	h.setup.Spec = enforce.Spec{Workspace: work, Identity: ids, Env: []string{"PATH=/usr/bin:/bin"}, Trees: []enforce.Tree{
		{Path: work, Writable: true, Pins: []string{".git"}, Protected: []string{".git/config", ".git/hooks", ".mcp.json"},
			Masks: []string{".env"}, MaskDirs: []string{"secrets"}},
		{Path: docs},
		{Path: filepath.Join(docs, "a.txt"), File: true},
	}}
	h.setup.Backend, h.setup.LandlockABI = enforce.Native, 7
	h.setup.Targets = Targets{StateFile: filepath.Join(home, "state/canary"), Scratch: scratch, Secret: secret, EnvName: canaryEnv}
	h.own(t, 4243)
}

// own gives all files to a user, so that its own rights stop nothing. Root needs that only where
// its capabilities are taken away.
func (h *host) own(t *testing.T, uid int) {
	t.Helper()
	must(t, filepath.WalkDir(h.dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(p, uid, uid)
		}
		return err
	}))
}

func (h *host) canaries(t *testing.T) {
	t.Helper()
	tg := &h.setup.Targets
	tg.LoopbackPort = listen(t, "tcp4", "127.0.0.1:0").Addr().(*net.TCPAddr).Port
	tg.LoopbackPort6 = listen(t, "tcp6", "[::1]:0").Addr().(*net.TCPAddr).Port
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { udp.Close() })
	tg.UDPPort = udp.LocalAddr().(*net.UDPAddr).Port
	tg.AbstractSocket = fmt.Sprintf("probe-%d", os.Getpid())
	listen(t, "unix", "@"+tg.AbstractSocket)
	tg.PathSocket = h.path("socket")
	listen(t, "unix", tg.PathSocket)
	must(t, os.Chmod(tg.PathSocket, 0o777))
	// A process of the same user as the battery's, so that ids stop nothing.
	canary := exec.Command("/bin/sh", "-c", "read x")
	canary.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4243, Gid: 4243}}
	in, err := canary.StdinPipe()
	must(t, err)
	must(t, canary.Start())
	t.Cleanup(func() { in.Close(); canary.Wait() })
	tg.Process = canary.Process.Pid
	tg.HostNetNS = readlink(t, "/proc/thread-self/ns/net")
	tg.HostPidNS = readlink(t, "/proc/self/ns/pid")
	tg.HostMntNS = readlink(t, "/proc/self/ns/mnt")
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// run starts the battery with a wrapper in front, as the user, with a folder of the host as an
// additional descriptor.
func (h *host) run(t *testing.T, uid int, wrapper ...string) map[string]enforce.Probe {
	t.Helper()
	s := h.setup
	s.Spec.Identity.UID, s.Spec.Identity.GID = uid, uid
	data, err := json.Marshal(s)
	must(t, err)
	file := h.path("setup")
	must(t, os.WriteFile(file, data, 0o644))
	argv := append(wrapper, h.exe)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(s.Spec.Env, setupEnv+"="+file, canaryEnv+"=1")
	dir, err := os.Open("/")
	must(t, err)
	defer dir.Close()
	cmd.ExtraFiles = []*os.File{dir}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, stderr.String())
	}
	var probes []enforce.Probe
	must(t, json.Unmarshal(out, &probes))
	byName := map[string]enforce.Probe{}
	for _, p := range probes {
		if _, dup := byName[p.Name]; dup {
			t.Errorf("two probes are named %s", p.Name)
		}
		byName[p.Name] = p
	}
	return byName
}

func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func readlink(t *testing.T, name string) string {
	t.Helper()
	s, err := os.Readlink(name)
	must(t, err)
	return s
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	p := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, []byte(data), 0o644))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot lists everything about the files below a folder that an attempt could change.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("ino=%d mode=%o uid=%d nlink=%d mtime=%d.%d ctime=%d.%d", st.Ino, st.Mode, st.Uid, st.Nlink,
			st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += " data=" + strconv.Quote(string(data))
		}
		all[p] = line
		return nil
	}))
	return all
}
