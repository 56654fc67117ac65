package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
)

// built holds coworker, its helpers and smuggler; every user can execute them. faulty holds coworker with the tag walltest.
var (
	built  string
	faulty = sync.OnceValues(func() (string, error) {
		dir := filepath.Join(built, "faulty")
		return dir, errors.Join(os.Mkdir(dir, 0o755), product.Build(dir, product.Proxy, "walltest"))
	})
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(product.Main(m, func(dir string) error {
		return errors.Join(product.Compile(dir, "smuggler", "coworker/integration/egress/smuggler", "", ""), product.Build(dir, product.Proxy, ""))
	}, func(dir string) { built = dir }))
}

// world is a person with a workspace, on a host of the test.
type world struct {
	user                      testuser.User
	base, home, work, outside string
	own                       string // coworker's own folders
	hosts                     *hosts
}

func newWorld(t testing.TB, u testuser.User, run string) *world {
	t.Helper()
	base := u.Dir(t)
	w := &world{user: u, base: base, home: filepath.Join(base, "home"), work: filepath.Join(base, "home/work"), outside: filepath.Join(base, "outside"),
		own: filepath.Join(base, "own"), hosts: newHosts(t, newNamespaces(t), run)}
	for _, dir := range []string{w.work, w.outside, w.own} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(built, "smuggler"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.smuggler(), data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := u.Own(base); err != nil {
		t.Fatal(err)
	}
	w.hosts.addSockets(t, u, w.work, w.outside)
	t.Cleanup(func() { w.forget(t) })
	return w
}

func (w *world) smuggler() string { return filepath.Join(w.work, "smuggler") }

// forget removes the private home, which lies elsewhere if coworker runs as root.
func (w *world) forget(t testing.TB) {
	if !w.user.Root() {
		return
	}
	cmd := exec.Command(filepath.Join(built, "coworker"), "cache", "reset", "--workspace", w.work)
	cmd.Env = append(os.Environ(), "COWORKER_HOME="+w.own)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("cache reset: %v: %s", err, out)
	}
}

// aim writes the file that tells the smuggler its targets.
func (w *world) aim(t testing.TB) string {
	t.Helper()
	w.hosts.targets.Dir = w.work
	data, err := json.Marshal(w.hosts.targets)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.work, "targets.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, w.user.UID, w.user.GID); err != nil {
		t.Fatal(err)
	}
	return file
}

// command prepares a program of the world's user, in the workspace.
func (w *world) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := w.user.Command(ctx, w.home, program, args...)
	cmd.Dir = w.work
	cmd.Env = append(cmd.Env, "COWORKER_HOME="+w.own)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// report is what the cases read of --report.
type report struct {
	ExitCode int    `json:"exit_code"`
	Level    string `json:"level"`
	Egress   []struct {
		Host    string `json:"host"`
		Verdict string `json:"verdict"`
		Source  string `json:"source"`
		Reason  string `json:"reason"`
	} `json:"egress"`
	Watching []string `json:"watching"`
	Denials  []struct {
		Wall   string `json:"wall"`
		What   string `json:"what"`
		Needed string `json:"needed"`
		Source string `json:"source"`
	} `json:"denials"`
}

func (w *world) reportFile() string { return filepath.Join(w.base, "report.json") }

func (w *world) report(t testing.TB, stderr *bytes.Buffer) report {
	t.Helper()
	var r report
	data, err := os.ReadFile(w.reportFile())
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, stderr.String())
	}
	return r
}

// eachUser runs a test as root and as the unprivileged user.
func eachUser(t *testing.T, f func(t *testing.T, u testuser.User)) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) { f(t, u) })
	}
}
