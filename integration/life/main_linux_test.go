package life

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/integration/house/testuser"
	"coworker/integration/life/plan"
	"coworker/integration/product"
	"coworker/runtime/session"
)

// binVar names the folder with the built binaries; it is set in a test binary that the suite started
// again as the unprivileged user.
const binVar = "COWORKER_LIFE_BIN"

// bin holds coworker-cell, coworker-proxy, driver and life.test, walls/ the first three with the switch for walls.
var bin string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "keeper" {
		fakeKeeper()
		os.Exit(1)
	}
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}

func prepare(m *testing.M) (int, error) {
	if bin = os.Getenv(binVar); bin == "" {
		dir, err := os.MkdirTemp("", "coworker-life-")
		if err != nil {
			return 2, err
		}
		defer os.RemoveAll(dir)
		if err := build(dir); err != nil {
			return 2, err
		}
		bin = dir
	}
	var err error
	if session.CellDigest, err = product.Digest(filepath.Join(bin, "coworker-cell")); err != nil {
		return 2, err
	}
	if session.ProxyDigest, err = product.Digest(filepath.Join(bin, "coworker-proxy")); err != nil {
		return 2, err
	}
	return m.Run(), nil
}

func build(dir string) error {
	for _, b := range []struct{ dir, tags string }{{dir, ""}, {filepath.Join(dir, "walls"), "walltest"}} {
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
		flags, err := product.Helpers(b.dir, product.Proxy, b.tags)
		if err != nil {
			return err
		}
		box, err := product.Box(b.dir)
		if err != nil {
			return err
		}
		flags += box
		if err := product.Compile(b.dir, "driver", "coworker/integration/life/driver", flags, b.tags); err != nil {
			return err
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "life.test"), self, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// everyUser runs a test as whoever runs the suite and, if that is root, again as the unprivileged
// user in a process of its own.
func everyUser(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		f(t)
		return
	}
	t.Run("root", f)
	t.Run("user", func(t *testing.T) {
		u := testuser.Unprivileged(t)
		top, _, _ := strings.Cut(t.Name(), "/")
		cmd := u.Command(t.Context(), u.Dir(t), filepath.Join(bin, "life.test"), "-test.run=^"+top+"$", "-test.timeout=5m")
		cmd.Env = append(cmd.Env, binVar+"="+bin)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// newPlace is a place for sessions of this process.
func newPlace(t testing.TB) plan.Place {
	t.Helper()
	p, err := plan.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var cellProgram = sync.OnceValues(func() (*os.File, error) {
	// OpenProgram looks beside the executable, and the one that go test made lies elsewhere: it is
	// found through a copy of this test binary.
	file, err := os.Open(filepath.Join(bin, "coworker-cell"))
	return file, err
})

// open opens a session in this process; the test closes it.
func open(t testing.TB, p plan.Place, change ...func(*session.Options)) (*session.Session, error) {
	t.Helper()
	program, err := cellProgram()
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Options(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&o)
	}
	return session.Open(context.Background(), o)
}

// opened is open for tests that need the session.
func opened(t testing.TB, p plan.Place, change ...func(*session.Options)) *session.Session {
	t.Helper()
	s, err := open(t, p, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// sh runs a script and returns what it wrote.
func sh(t testing.TB, s *session.Session, script string) (string, session.Result) {
	t.Helper()
	var out strings.Builder
	r, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), r
}

// job and said mirror the driver's.
type job struct {
	plan.Place
	Fault    enforce.Wall
	Named    []string
	Argv     []string
	Sessions int
	Repeat   int
	Graceful bool
	Timeout  time.Duration
}

type said struct {
	Event   string
	Level   string
	Missing []string
	Text    string
	Code    int
	Limits  []enforce.Limit
}

// supervisor is a running driver.
type supervisor struct {
	cmd   *exec.Cmd
	lines chan said // closed at the end of its output
	done  chan struct{}
	err   error // valid after done
	text  strings.Builder
}

// startDriver starts a driver as a user.
func startDriver(t testing.TB, u testuser.User, program string, j job) *supervisor {
	t.Helper()
	arg, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	s := &supervisor{lines: make(chan said, 1000), done: make(chan struct{})}
	s.cmd = u.Command(context.Background(), j.Home, program, string(arg))
	s.cmd.Stderr = &s.text
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		defer close(s.lines)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var l said
			if json.Unmarshal(lines.Bytes(), &l) == nil {
				s.lines <- l
			}
		}
		io.Copy(io.Discard, out)
		s.err = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGKILL)
		<-s.done
	})
	return s
}

// wait gives everything a driver said.
func (s *supervisor) wait(t testing.TB) []said {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the driver does not end")
	}
	var all []said
	for l := range s.lines {
		all = append(all, l)
	}
	return all
}

// userPlace is a place that belongs to a user.
func userPlace(t testing.TB, u testuser.User) plan.Place {
	t.Helper()
	dir := u.Dir(t)
	p, err := plan.New(dir)
	if err == nil {
		err = u.Own(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
