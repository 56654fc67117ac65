package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/integration/load/network"
	"coworker/integration/product"
)

// built holds coworker, its helpers and client; every user can execute them.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(product.Main(m, func(dir string) error {
		return errors.Join(product.Compile(dir, "client", "coworker/integration/load/client", "", ""), product.Build(dir, product.Proxy, ""))
	}, func(dir string) { built = dir }))
}

// world is a person with a workspace on a host of the test, and an origin behind it that sends everything back.
type world struct {
	user             testuser.User
	home, work, base string
	net              *network.Network
	origin           *origin
}

func newWorld(t testing.TB, u testuser.User) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	base := u.Dir(t)
	w := &world{user: u, base: base, home: filepath.Join(base, "home"), work: filepath.Join(base, "home/work")}
	if err := os.MkdirAll(w.work, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(built, "client"))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.work, "client"), data, 0o755)
	}
	if err == nil {
		w.net, err = network.New(t.TempDir())
	}
	if err == nil {
		err = u.Own(base)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.forget(t)
		if err := w.net.Close(); err != nil {
			t.Error(err)
		}
	})
	w.origin = newOrigin(t, w.net)
	return w
}

// forget removes the private home, which lies elsewhere if coworker runs as root.
func (w *world) forget(t testing.TB) {
	if !w.user.Root() {
		return
	}
	if out, err := w.command("cache", "reset", "--workspace", w.work).CombinedOutput(); err != nil {
		t.Errorf("cache reset: %v: %s", err, out)
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := w.user.Command(context.Background(), w.home, filepath.Join(built, "coworker"), args...)
	cmd.Dir = w.work
	cmd.Env = append(cmd.Env, "COWORKER_HOME="+filepath.Join(w.base, "own"))
	cmd.WaitDelay = 5 * time.Second // a helper that outlives coworker must not hold its pipes
	return cmd
}

// job is the argument of client, which explains it.
type job struct {
	Kind, Proxy, Host    string
	Port, Workers, Count int
	Seconds              float64
	Path                 string
	During               *job
}

// result is what client prints.
type result struct {
	Requests, Errors int
	Error            string
	During           *result
}

// run is a client in a session of its own.
type run struct {
	t     testing.TB
	w     *world
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	notes strings.Builder
}

// start begins a session with one raw rule, and the client in it.
func (w *world) start(t testing.TB, j job) *run {
	t.Helper()
	j.Host, j.Port, j.Proxy = network.Name, echoPort, "127.0.0.1:3128"
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, w: w}
	r.cmd = w.command("exec", "--ro", "--report", w.reportFile(), "--allow", network.Name+":"+strconv.Itoa(echoPort)+"="+network.Range, "--", "./client", string(text))
	r.cmd.Stderr = &r.notes
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if err := w.net.Near(r.cmd.Start); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) reportFile() string { return filepath.Join(w.base, "report.json") }

// held waits until the client holds its connections.
func (r *run) held() {
	r.t.Helper()
	if line, err := r.out.ReadString('\n'); line != "held\n" {
		r.cmd.Process.Kill()
		r.t.Fatalf("the client says %q, %v; %v\n%s", line, err, r.cmd.Wait(), r.notes.String())
	}
}

// end lets the client go on, and gives what it found.
func (r *run) end() result {
	r.t.Helper()
	var got result
	r.in.Close()
	err := json.NewDecoder(r.out).Decode(&got)
	if err = errors.Join(err, r.cmd.Wait()); err != nil {
		r.t.Fatalf("%v\n%s", err, r.notes.String())
	}
	return got
}
