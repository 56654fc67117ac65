package bench

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/enforce/hide"
	"coworker/enforce/protect"
	"coworker/integration/house/testuser"
	"coworker/netproxy/control"
	"coworker/platform/config"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

// The test binary starts itself as the user who is measured, as a helper that holds one or more sessions. It reads one
// request a line and answers with one line of JSON.
const helperVar = "COWORKER_BENCH_HELPER"

var report table

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench helper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		report.note("load average at the end %.14s on %d processors; quote ratios, not times", load, runtime.NumCPU())
	}
	if err := report.print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// request asks the helper to open sessions or to run one round.
type request struct {
	Open     int                 // sessions to open in the current folder
	Once     bool                // they are for one command, as those of exec
	Staged   bool                // their workspace is staged
	Allow    []string            // rules of their network; none: no network
	Variants map[string][]string // label → command; "inside…" runs in the first session
	Order    []string
	Close    bool // the session that was opened last
	Memory   bool // answer with the resident share of everything that belongs to the sessions
}

// answer holds milliseconds by label, or MiB.
type answer struct {
	Numbers map[string]float64
	Error   string
}

const inside = "inside"

// discard keeps no rows: what a durable row costs is measured apart.
type discard struct{}

func (discard) Attest(context.Context, []byte) (string, error)         { return "none", nil }
func (discard) Record(context.Context, string, ...session.Event) error { return nil }

func serve(r io.Reader, w io.Writer) error {
	h := &holder{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		a := answer{Numbers: map[string]float64{}}
		if err := h.answer(q, a.Numbers); err != nil {
			a.Error = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return h.close()
}

// holder owns the sessions of one helper.
type holder struct {
	program  *os.File
	proxy    *os.File
	sessions []*session.Session
}

func (h *holder) answer(q request, out map[string]float64) error {
	ctx := context.Background()
	if q.Open > 0 {
		begun := time.Now()
		for range q.Open {
			if err := h.open(ctx, q, out); err != nil {
				return err
			}
		}
		out["open"] = since(begun) / float64(q.Open)
	}
	for _, label := range q.Order {
		begun := time.Now()
		var err error
		if strings.HasPrefix(label, inside) {
			err = h.inside(ctx, q.Variants[label])
		} else {
			err = outside(q.Variants[label])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		out[label] = since(begun)
	}
	if q.Close {
		last := len(h.sessions) - 1
		s := h.sessions[last]
		h.sessions = h.sessions[:last]
		if err := timed(out, "close", s.Close); err != nil {
			return err
		}
	}
	if q.Memory {
		return h.memory(out)
	}
	return nil
}

// timed notes how long f took, in milliseconds.
func timed(out map[string]float64, label string, f func() error) error {
	begun := time.Now()
	err := f()
	out[label] = since(begun)
	return err
}

func since(t time.Time) float64 { return float64(time.Since(t).Nanoseconds()) / 1e6 }

func (h *holder) open(ctx context.Context, q request, out map[string]float64) error {
	begun := time.Now()
	if h.program == nil {
		if err := h.openPrograms(); err != nil {
			return err
		}
		out["program"] = since(begun)
	}
	begun = time.Now()
	plan, dirs, err := planHere(q.Allow, q.Staged)
	if err != nil {
		return err
	}
	out["plan"] = since(begun)
	begun = time.Now()
	o := session.Options{
		Spec: plan.Spec, Backend: session.Backends()[0], Program: h.program, StateDir: dirs, MinLevel: enforce.Enforced,
		Recorder: discard{}, Notify: func(session.Notice) {}, Now: time.Now, OneCommand: q.Once,
		Staged: q.Staged, StageStore: plan.StageStore,
	}
	if len(q.Allow) > 0 {
		o.Egress = &session.Egress{Program: h.proxy, Config: control.Config{Allow: q.Allow}}
	}
	s, err := session.Open(ctx, o)
	if err != nil {
		return err
	}
	out["session"] = since(begun)
	for phase, took := range s.Phases() {
		out[phase] = float64(took.Nanoseconds()) / 1e6
	}
	h.sessions = append(h.sessions, s)
	return nil
}

func (h *holder) openPrograms() error {
	for name, digest := range map[string]*string{"coworker-cell": &session.CellDigest, "coworker-proxy": &session.ProxyDigest} {
		program, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), name))
		if err != nil {
			return err
		}
		*digest = fmt.Sprintf("%x", sha256.Sum256(program))
	}
	var err error
	if h.program, err = session.OpenProgram(); err != nil {
		return err
	}
	h.proxy, err = session.OpenProxy()
	return err
}

// planHere is what `coworker exec -w` decides for the current folder, with --allow for each rule, or with --staged.
func planHere(allow []string, staged bool) (wallspec.Plan, string, error) {
	host, err := wallspec.LocalHost()
	if err != nil {
		return wallspec.Plan{}, "", err
	}
	host.Protected = func(rel string, dir bool) bool { _, ok := protect.Match(rel, dir); return ok }
	host.Secret = func(rel string) bool { return hide.ByName(rel) != hide.Visible }
	settings, err := config.Load(host.ConfigFile)
	if err != nil {
		return wallspec.Plan{}, "", err
	}
	req := wallspec.Request{Config: settings, Write: true, Staged: staged, Net: wallspec.Net{Allow: allow}}
	if req.Egress, err = wallspec.ParseNet(req.Net, nil, nil); err != nil {
		return wallspec.Plan{}, "", err
	}
	plan, err := wallspec.Build(req, host)
	if err != nil {
		return wallspec.Plan{}, "", err
	}
	return plan, host.Dirs.State, host.Dirs.Make()
}

func (h *holder) inside(ctx context.Context, argv []string) error {
	if len(h.sessions) == 0 {
		return fmt.Errorf("no session is open")
	}
	var text tail
	result, err := h.sessions[0].Run(ctx, session.Command{Argv: argv, Stdout: &text, Stderr: &text})
	if err != nil {
		return err
	}
	if !result.Started || result.Code != 0 {
		return fmt.Errorf("%q ended with %d %s: %s", argv, result.Code, result.Reason, text)
	}
	return nil
}

func outside(argv []string) error {
	var text tail
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%q: %w: %s", argv, err, text)
	}
	return nil
}

// tail keeps the end of an output for messages.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-400):]
	return len(p), nil
}

func (h *holder) close() error {
	for _, s := range h.sessions {
		if err := s.Close(); err != nil {
			return err
		}
		if stage := s.Staged(); stage != nil {
			if err := errors.Join(stage.Discard(context.Background()), stage.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// helper is the other end, in the process that runs the benchmarks.
type helper struct {
	b   *testing.B
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// place is a user with a home, a workspace and the binaries where that user can start them.
type place struct {
	user            testuser.User
	home, workspace string
	bin             string
}

func newPlace(b *testing.B, u testuser.User) place {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	// /tmp is private inside, so a workspace or a store of coworker's there is a special case, and in memory on some hosts.
	b.Setenv("TMPDIR", "/var/tmp")
	bin := testuser.Install(b, self, "../../bin/coworker", "../../bin/coworker-cell", "../../bin/coworker-proxy")
	p := place{user: u, home: u.Dir(b), bin: bin}
	p.workspace = filepath.Join(p.home, "work")
	return p
}

func (p place) command(program string, args ...string) *exec.Cmd {
	cmd := p.user.Command(context.Background(), p.home, program, args...)
	cmd.Dir = p.workspace
	return cmd
}

func (p place) helper(b *testing.B) *helper {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	h := &helper{b: b, cmd: p.command(filepath.Join(p.bin, filepath.Base(self)))}
	h.cmd.Env = append(h.cmd.Env, helperVar+"=1")
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		h.in.Close()
		if err := h.cmd.Wait(); err != nil {
			b.Errorf("bench helper: %v", err)
		}
	})
	return h
}

func (h *helper) ask(q request) map[string]float64 {
	h.b.Helper()
	line, err := json.Marshal(q)
	if err != nil {
		h.b.Fatal(err)
	}
	if _, err := h.in.Write(append(line, '\n')); err != nil {
		h.b.Fatal(err)
	}
	line, err = h.out.ReadBytes('\n')
	if err != nil {
		h.b.Fatalf("bench helper: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		h.b.Fatal(err)
	}
	if a.Error != "" {
		h.b.Fatal(a.Error)
	}
	return a.Numbers
}
