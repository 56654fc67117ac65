package egress

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/cgroup"
)

// roleVar makes the test binary a process inside a group.
const roleVar = "COWORKER_TEST_EGRESS"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		attack(role)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attack waits for a line and makes every attempt of the table, or the one kind of its role.
func attack(role string) {
	lines := bufio.NewReader(os.Stdin)
	if _, err := lines.ReadString('\n'); err != nil {
		return
	}
	switch kind, arg, _ := strings.Cut(role, ":"); kind {
	case "attempts":
		out := map[string]string{}
		for _, a := range attempts {
			out[a.name] = errnoText(a.do())
		}
		json.NewEncoder(os.Stdout).Encode(out)
	case "flood":
		n, _ := strconv.Atoi(arg)
		flood(n)
		fmt.Println("flooded")
	case "late":
		late(lines)
	case "measure":
		measure(arg)
	case "exec":
		if err := exec.Command("/bin/true").Run(); err != nil {
			fmt.Println(err)
		}
		fmt.Println("done")
	}
	lines.ReadString('\n') // stay until told
}

func errnoText(err error) string {
	if err == nil {
		return "ok"
	}
	if errno, ok := err.(unix.Errno); ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func flood(n int) {
	for range n {
		if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP); err == nil {
			unix.Close(fd)
		}
	}
}

var groups atomic.Int64

// newGroup makes a control group; the tests here need root.
func newGroup(t testing.TB) *cgroup.Group {
	t.Helper()
	g, err := cgroup.New(fmt.Sprintf("test-egress-%d-%d", os.Getpid(), groups.Add(1)), enforce.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	if g.Unified() == "" {
		t.Fatal("this machine has no control groups of version 2")
	}
	return g
}

func attachTo(t testing.TB, g *cgroup.Group, literals ...netip.Addr) *Programs {
	t.Helper()
	p, err := Attach(g.Unified(), literals)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// member is a process that is in the group before it makes its first socket, and waits for a line.
type member struct {
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Reader
}

// start makes a member, in network and mount namespaces of its own or in ours.
func start(t testing.TB, g *cgroup.Group, role string, namespaces uintptr) *member {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVar + "=" + role, "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // it was killed
	})
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return &member{cmd, in, bufio.NewReader(out)}
}

// attempt lets the process make its attempts.
func (m *member) attempt(t testing.TB) map[string]string {
	t.Helper()
	m.in.Write([]byte("\n"))
	got := map[string]string{}
	line, err := m.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &got)
	}
	if err != nil {
		t.Fatalf("the process inside said %q: %v", line, err)
	}
	return got
}

// heard collects what the programs tell until nothing comes any more.
func heard(t testing.TB, p *Programs) []enforce.Refusal {
	t.Helper()
	var all []enforce.Refusal
	p.reader.SetDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		r, err := p.Next()
		if err != nil {
			return all
		}
		all = append(all, r)
	}
}
