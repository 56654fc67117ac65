package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
)

// built holds coworker, its helpers and seeker; every user can execute them.
var built string

// builtVariable is how a test process that started itself again finds them.
const builtVariable = "COWORKER_CREDENTIAL_BUILT"

func TestMain(m *testing.M) {
	flag.Parse()
	if built = os.Getenv(builtVariable); built != "" {
		os.Exit(m.Run())
	}
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (code int, err error) {
	if built, err = os.MkdirTemp("", "coworker-credential-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(built)) }()
	// The second is the same with a short time for an answer.
	err = errors.Join(os.Chmod(built, 0o755), build(built, "test"), build(filepath.Join(built, "quick"), "test -X coworker/cmd/coworker/cli.askTime=1s"))
	if err != nil {
		return 1, err
	}
	if os.Geteuid() != 0 {
		return again()
	}
	return m.Run(), nil
}

// again runs the tests in a user namespace, where somebody who is not root may make the others.
func again() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), builtVariable+"="+built)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
	}
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), err
}

func build(dir, version string) error {
	return errors.Join(product.Release(dir, version), product.Compile(dir, "seeker", "coworker/integration/credential/seeker", "", ""))
}

// eachUser runs a test as root and as the unprivileged user, each with a person and servers of its own.
func eachUser(t *testing.T, f func(t *testing.T, p *person)) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) { f(t, newPerson(t, u)) })
	}
}

// person is somebody with a home, a workspace and the servers around them.
type person struct {
	user testuser.User
	base string // all that is theirs
	home string
	work string
	*world
	variables []string // beside those of every command
}

func newPerson(t *testing.T, u testuser.User) *person {
	t.Helper()
	p := &person{user: u, base: u.Dir(t), world: newWorld(t)}
	p.home, p.work = filepath.Join(p.base, "home"), filepath.Join(p.base, "project")
	for _, dir := range []string{p.home, p.work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.own(t)
	return p
}

// own gives everything to the person that the test made as root.
func (p *person) own(t testing.TB) {
	t.Helper()
	if err := p.user.Own(p.base); err != nil {
		t.Fatal(err)
	}
}

// write puts a file into the person's home or workspace.
func (p *person) write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.own(t)
}

// settings writes the person's configuration.
func (p *person) settings(t testing.TB, text string) {
	t.Helper()
	p.write(t, filepath.Join(p.home, ".config/coworker/config.toml"), text)
}

// searchPath has only what every user can execute.
const searchPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// patience bounds every command of the suite.
const patience = 90 * time.Second

// command prepares coworker as the person. It belongs to the namespaces of the world once it is started with begin.
func (p *person) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := p.user.Command(ctx, p.home, filepath.Join(built, "coworker"), args...)
	cmd.Dir = p.work
	cmd.Env = append([]string{"PATH=" + searchPath, "HOME=" + p.home, "LANG=C.UTF-8", "USER=" + p.user.String()}, p.variables...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// ended is how a command line ended.
type ended struct {
	code     int
	out, err string
	report   report
	rawText  string // the report as it was written
}

// report is what the cases read of --report.
type report struct {
	ExitCode int `json:"exit_code"`
	Denials  []struct {
		Wall   string `json:"wall"`
		What   string `json:"what"`
		Needed string `json:"needed"`
		Source string `json:"source"`
	} `json:"denials"`
	Egress []struct {
		Host       string `json:"host"`
		Port       int    `json:"port"`
		Addr       string `json:"addr"`
		Verdict    string `json:"verdict"`
		Rule       string `json:"rule"`
		Reason     string `json:"reason"`
		Credential string `json:"credential"`
		ResolvedBy string `json:"resolved_by"`
		BytesIn    int64  `json:"bytes_in"`
		BytesOut   int64  `json:"bytes_out"`
		Inspected  bool   `json:"inspected"`
	} `json:"egress"`
	Watching []string `json:"watching"`
	Started  *string  `json:"started"`
}

// coworker runs one of its commands with an input, and tells how it ended.
func (p *person) coworker(t testing.TB, input string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.command(ctx, args...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := p.begin(cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return ended{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String()}
}

// must runs coworker and wants success.
func (p *person) must(t testing.TB, input string, args ...string) ended {
	t.Helper()
	e := p.coworker(t, input, args...)
	if e.code != 0 {
		t.Fatalf("coworker %q ended with %d\n%s%s", args, e.code, e.out, e.err)
	}
	return e
}

// exec runs `coworker exec -w FLAGS -- ARGV` to its end.
func (p *person) exec(t testing.TB, flags []string, argv ...string) ended {
	t.Helper()
	file := filepath.Join(p.base, "report.json")
	args := slices.Concat([]string{"exec", "-w", "--report", file}, flags, []string{"--"}, argv)
	e := p.coworker(t, "", args...)
	e.readReport(t, file)
	return e
}

func (e *ended) readReport(t testing.TB, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, e.err)
	}
	e.rawText = string(data)
	if err := json.Unmarshal(data, &e.report); err != nil {
		t.Fatalf("report: %v", err)
	}
}

// allow are the flags that let a session reach hosts of the world.
func allow(hosts ...string) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, "--allow", h+"="+outside)
	}
	return out
}

func (e ended) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s\n--- stderr\n%s", e.code, e.out, e.err)
}
