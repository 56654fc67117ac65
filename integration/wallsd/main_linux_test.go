package wallsd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
	"coworker/runtime/wallsd"
)

// The test binary started again is an attacker: roleVar names what it does, socketVar where the helper listens.
const (
	roleVar   = "COWORKER_TEST_ROLE"
	socketVar = "COWORKER_TEST_SOCKET"
	nameVar   = "COWORKER_TEST_SESSION"
)

var bin string // the programs of a release, and this test binary as "attacker"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(attack(role))
	}
	os.Exit(product.Main(m, buildAll, func(dir string) { bin = dir }))
}

func buildAll(dir string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "attacker"), self, 0o755)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "attacker"), 0o755)
	}
	return errors.Join(err, product.Release(dir, "test"))
}

// helper is a running coworker-wallsd.
type helper struct {
	cmd    *exec.Cmd
	socket string
	log    *lockedBuffer
	files  int // descriptors that it has when nobody is connected
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts a helper whose state is compared at the end of the test: nothing may have leaked, and it ends when told.
func start(t *testing.T, flags ...string) *helper {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the helper runs as root, and so must this test")
	}
	dir, err := os.MkdirTemp("", "coworker-wallsd-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &helper{socket: filepath.Join(dir, "run", "wallsd.sock"), log: &lockedBuffer{}}
	h.cmd = exec.Command(filepath.Join(bin, "coworker-wallsd"), append([]string{"--socket", h.socket}, flags...)...)
	h.cmd.Stderr = h.log
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.stop(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the helper answers", h.serving)
	h.settle(t)
	h.files = h.descriptors(t)
	return h
}

func (h *helper) serving() bool {
	build, err := wallsd.Ask(h.socket)
	return err == nil && build == "test"
}

func (h *helper) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// settle waits until no connection is open.
func (h *helper) settle(t *testing.T) {
	t.Helper()
	last := -1
	eventually(t, "the helper comes to rest", func() bool {
		now := h.descriptors(t)
		same := now == last
		last = now
		time.Sleep(50 * time.Millisecond)
		return same
	})
}

// unharmed says that the helper still serves and holds nothing of what was there.
func (h *helper) unharmed(t *testing.T) {
	t.Helper()
	if !h.serving() {
		t.Fatalf("the helper does not serve any more:\n%s", h.log.String())
	}
	eventually(t, "the helper gave all descriptors back", func() bool { return h.descriptors(t) <= h.files })
	eventually(t, "no group is left", func() bool { return len(groups(t, sessionPrefix())) == 0 })
}

func (h *helper) stop(t *testing.T) {
	t.Helper()
	if h.cmd.ProcessState != nil {
		return
	}
	h.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- h.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the helper ended with %v:\n%s", err, h.log.String())
		}
	case <-time.After(20 * time.Second):
		h.cmd.Process.Kill()
		<-done
		t.Error("the helper did not end within 20 s of SIGTERM")
	}
}

// kill ends the helper as a crash would.
func (h *helper) kill(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.cmd.Wait() // killed: the error says so
}

// lines are what the helper logged.
func (h *helper) lines(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for s := bufio.NewScanner(strings.NewReader(h.log.String())); s.Scan(); {
		m := map[string]any{}
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Errorf("line %q of the log: %v", s.Text(), err)
		}
		out = append(out, m)
	}
	return out
}

func (h *helper) logged(t *testing.T, op, verdict, reason string) bool {
	t.Helper()
	for _, l := range h.lines(t) {
		text, _ := l["reason"].(string)
		if l["op"] == op && l["verdict"] == verdict && strings.Contains(text, reason) {
			return true
		}
	}
	return false
}

// sessionPrefix begins the name of every session of this process's attackers.
func sessionPrefix() string { return "t" + strconv.Itoa(os.Getpid()) }

// groups lists the groups of sessions with a name in all hierarchies.
func groups(t *testing.T, name string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup/coworker/u*-", "/sys/fs/cgroup/*/coworker/u*-"} {
		found, err := filepath.Glob(pattern + name + "*")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not so within 15 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// attacker prepares this binary as a user, in a role.
func (h *helper) attacker(t *testing.T, u testuser.User, role string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := u.Command(ctx, u.Dir(t), filepath.Join(bin, "attacker"))
	cmd.Env = append(cmd.Env, roleVar+"="+role, socketVar+"="+h.socket, nameVar+"="+sessionPrefix())
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// victim is a process that sleeps as a user, below this test.
func victim(t *testing.T, uid int) int {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	})
	return cmd.Process.Pid
}
