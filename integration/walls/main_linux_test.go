package walls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
)

// built holds coworker, its helpers and attacker; every user can execute them.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(product.Main(m, func(dir string) error {
		return errors.Join(product.Compile(dir, "attacker", "coworker/integration/walls/attacker", "", ""), product.BuildAll(dir))
	}, func(dir string) { built = dir }))
}

// eachUser runs a test as root and as the unprivileged user.
func eachUser(t *testing.T, f func(t *testing.T, u testuser.User)) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) { f(t, u) })
	}
}

// containerName is the subtest in which worlds have the backend container.
const containerName = "container"

// eachBackend is eachUser, and once more as root with the backend container.
func eachBackend(t *testing.T, f func(t *testing.T, u testuser.User)) {
	eachUser(t, f)
	if root := testuser.All(t)[0]; root.Root() {
		t.Run(containerName, func(t *testing.T) { f(t, root) })
	}
}

// backend is the one for the worlds of a test.
func backend(t testing.TB) string {
	if slices.Contains(strings.Split(t.Name(), "/"), containerName) {
		return "container"
	}
	return "auto"
}

// ended is how a command line ended.
type ended struct {
	code     int
	out, err string
	report   report
	took     time.Duration
}

// report is what the cases read of --report.
type report struct {
	ExitCode int    `json:"exit_code"`
	Level    string `json:"level"`
	Held     []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"held"`
	Denials []struct {
		Wall string `json:"wall"`
		What string `json:"what"`
	} `json:"denials"`
	DroppedEnv []string `json:"dropped_env"`
	Started    *string  `json:"started"`
	Walls      map[string]struct {
		Mechanisms []string `json:"mechanisms"`
		Detail     string   `json:"detail"`
	} `json:"walls"`
	Staged *struct {
		Session                           string
		Changes, Applied, Held, Conflicts int
	} `json:"staged"`
}

// patience bounds every command of the suite.
const patience = 90 * time.Second

// command prepares a run of coworker by the user of a world, in its workspace.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := w.user.Command(ctx, w.home, filepath.Join(built, "coworker"), args...)
	cmd.Dir = w.work
	cmd.Env = append(cmd.Env, "COWORKER_HOME="+w.own, canaryVariable+"="+w.canary)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// exec runs `coworker exec -w FLAGS -- ARGV` to its end, without -w if FLAGS have --ro.
func (w *world) exec(t testing.TB, flags []string, argv ...string) ended {
	t.Helper()
	return w.execIn(t, nil, flags, argv...)
}

// execIn is exec from inside a network namespace.
func (w *world) execIn(t testing.TB, n *network, flags []string, argv ...string) ended {
	t.Helper()
	file := filepath.Join(w.base, "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append([]string{"exec", "--report", file}, flags...)
	if !slices.Contains(flags, "--ro") {
		args = append(args, "-w")
	}
	args = append(args, "--")
	e := w.finish(t, n, w.command(ctx, append(args, argv...)...))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, e.err)
	}
	if err := json.Unmarshal(data, &e.report); err != nil {
		t.Fatalf("report: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	return e
}

// coworker runs another of its commands and wants success.
func (w *world) coworker(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := w.finish(t, nil, w.command(ctx, args...))
	if e.code != 0 {
		t.Fatalf("coworker %q ended with %d: %s", args, e.code, e.err)
	}
	return e.out
}

// finish runs a command and tells how it ended. The command must start.
func (w *world) finish(t testing.TB, n *network, cmd *exec.Cmd) ended {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begun := time.Now()
	if err := n.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return ended{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String(), took: time.Since(begun)}
}

func itoa(n int) string { return strconv.Itoa(n) }
