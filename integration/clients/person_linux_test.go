package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// patience bounds every command.
const patience = 2 * time.Minute

// person is somebody who works on a project in the world.
type person struct {
	world           *world
	user            testuser.User
	home, work, own string
	key, known      string // files for ssh
}

func newPerson(t *testing.T, w *world, u testuser.User) *person {
	t.Helper()
	base := u.Dir(t)
	p := &person{world: w, user: u, home: filepath.Join(base, "home"), work: filepath.Join(base, "home/project"), own: filepath.Join(base, "own"),
		key: filepath.Join(base, "login/id_ed25519"), known: filepath.Join(base, "home/project/known_hosts")}
	for _, dir := range []string{p.work, p.own, filepath.Dir(p.key)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.WriteFile(p.key, w.login.key, 0o600), os.WriteFile(p.known, []byte(w.login.hosts), 0o600), u.Own(base))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// forget removes the private home, which lies elsewhere if coworker runs as root.
func (p *person) forget(t *testing.T) {
	cmd := exec.Command(filepath.Join(binaries, "coworker"), "cache", "reset", "--workspace", p.work)
	cmd.Env = append(os.Environ(), "COWORKER_HOME="+p.own)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("cache reset: %v: %s", err, out)
	}
}

// fill replaces the names of a client's texts by what is there.
func (p *person) fill(host string, texts ...string) []string {
	r := strings.NewReplacer("HOST", host, "KEY", p.key, "KNOWN", p.known)
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = r.Replace(text)
	}
	return out
}

// ended is how a command ended.
type ended struct {
	code     int
	out, err string
	told     time.Duration // until stderr showed the refusal; 0 if it never did
	took     time.Duration
	report   report
}

// mention is a stderr that knows when it was first told something.
type mention struct {
	text  bytes.Buffer
	name  string
	begun time.Time
	after time.Duration
}

func (m *mention) Write(b []byte) (int, error) {
	n, err := m.text.Write(b)
	if m.after == 0 && bytes.Contains(m.text.Bytes(), []byte(m.name)) {
		m.after = time.Since(m.begun)
	}
	return n, err
}

// report is what the cases read of --report.
type report struct {
	Level   string `json:"level"`
	Denials []struct {
		Wall   string `json:"wall"`
		What   string `json:"what"`
		Needed string `json:"needed"`
	} `json:"denials"`
	Egress []struct {
		Host    string `json:"host"`
		Addr    string `json:"addr"`
		Port    int    `json:"port"`
		Verdict string `json:"verdict"`
		BytesIn int64  `json:"bytes_in"`
	} `json:"egress"`
}

// direct runs a client in the world without coworker.
func (p *person) direct(t *testing.T, c client, host string) ended {
	t.Helper()
	p.prepare(t, c, host)
	argv := p.fill(host, c.argv...)
	program, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	return p.finish(t, "", p.fill(host, c.env...), program, argv[1:]...)
}

// behind runs it behind coworker, which allows one host.
func (p *person) behind(t *testing.T, c client, host string) ended {
	t.Helper()
	p.prepare(t, c, host)
	file := filepath.Join(p.own, "report.json")
	args := []string{"exec", "-w", "--report", file, "--allow", allowed + ":" + c.port + inRange}
	for _, flag := range c.flags {
		args = append(args, p.fill(host, flag)...)
	}
	for _, e := range p.fill(host, c.env...) {
		args = append(args, "--env", e)
	}
	args = append(append(args, "--"), p.fill(host, c.argv...)...)
	t.Cleanup(func() {
		if p.user.Root() {
			p.forget(t)
		}
	})
	sign := existing
	if c.sign != "" {
		sign = c.sign
	}
	e := p.finish(t, sign, nil, filepath.Join(binaries, "coworker"), args...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, e.err)
	}
	if err := errors.Join(json.Unmarshal(data, &e.report), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
	return e
}

// prepare writes the files of the project.
func (p *person) prepare(t *testing.T, c client, host string) {
	t.Helper()
	for name, content := range c.files {
		file := filepath.Join(p.work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(p.fill(host, content)[0]), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.user.Own(p.work); err != nil {
		t.Fatal(err)
	}
}

// finish runs a command of the person to its end and notes when stderr shows sign.
func (p *person) finish(t *testing.T, sign string, env []string, program string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.user.Command(ctx, p.home, program, args...)
	cmd.Dir = p.work
	cmd.Env = append(append(cmd.Env, "COWORKER_HOME="+p.own), env...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	errs := &mention{name: sign, begun: time.Now()}
	cmd.Stdout, cmd.Stderr = &out, errs
	if err := p.world.inside(cmd.Start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.text.String())
	}
	return ended{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.text.String(), told: errs.after, took: time.Since(errs.begun)}
}
