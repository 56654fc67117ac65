package session

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// runWrapper runs a script as RunShell does, without a cell around it.
func runWrapper(t *testing.T, program string, sh *Shell, script string) (code int, output string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(program, "-c", shellWrapper, "sh", script, sh.Dir, file)
	cmd.Env = sh.Env
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
	}
	out, err := cmd.CombinedOutput()
	code = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	st := &shellState{out: boundedBuffer{max: maxShellState}}
	data, err := os.ReadFile(file)
	if err != nil {
		st.result.Code = 3
	} else if n, err := st.out.Write(data); err != nil && n != 0 {
		t.Fatal(err)
	}
	next, err := st.parse()
	if err != nil {
		sh.Stale = err.Error()
		return code, string(out)
	}
	*sh = *next
	return code, string(out)
}

func value(sh *Shell, name string) string {
	for _, v := range sh.Env {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest
		}
	}
	return "<unset>"
}

var shellCases = []struct {
	name, script, output string
	code                 int
	dir                  string // afterwards
	x                    string // value of X afterwards
	stale                bool
}{
	{"cd and export", "cd /usr; export X=1", "", 0, "/usr", "1", false},
	{"not exported", "cd /usr; unset X; X=1", "", 0, "/usr", "<unset>", false},
	{"unset", "unset X", "", 0, "/", "<unset>", false},
	{"status", "export X=1; false", "", 1, "/", "1", false},
	{"exit", "export X=1; cd /usr; exit 42", "", 42, "/usr", "1", false},
	{"exit 0", "export X=1; exit 0; echo no", "", 0, "/", "1", false},
	{"set -e", "set -e; export X=1; false; export X=2", "", 1, "/", "1", false},
	{"set -u", "set -u; export X=1", "", 0, "/", "1", false},
	{"allexport", "set -a; X=1", "", 0, "/", "1", false},
	{"syntax error", "export X=1; if", "*", 2, "*", "old", false},
	{"own exit trap runs", "trap 'echo bye' EXIT; export X=1", "bye\n", 0, "/", "1", false},
	{"own exit trap and exit", "trap 'echo bye' EXIT; export X=1; exit 3", "bye\n", 3, "/", "old", true},
	{"exec", "export X=1; exec true", "", 0, "/", "old", true},
	{"killed", "export X=1; kill -9 $$", "", 137, "/", "old", true},
	{"ended by SIGTERM", "export X=1; kill -TERM $$; sleep 5", "", 143, "*", "*", false},
	{"quotes and newlines", "export X='a\n\"b'\\''c'", "", 0, "/", "a\n\"b'c", false},
	{"subshell changes nothing", "(cd /usr; export X=1)", "", 0, "/", "old", false},
	{"no arguments", "echo $#", "0\n", 0, "/", "old", false},
	{"last status is clean", "echo $?", "0\n", 0, "/", "old", false},
	{"output closed", "exec >&- 2>&-; export X=1", "", 0, "/", "1", false},
	{"background process", "sleep 0 & export X=1", "", 0, "/", "1", false},
	{"long variable", `X=$(head -c 200000 /dev/zero | tr '\0' a); export X`, "*", 0, "/", "old", true},
	{"cd back", "cd /usr; cd -", "/\n", 0, "/", "old", false},
	{"empty", "", "", 0, "/", "old", false},
}

func TestShellWrapper(t *testing.T) {
	for _, program := range []string{"/bin/bash", "/bin/sh"} {
		for _, tt := range shellCases {
			t.Run(program+"/"+tt.name, func(t *testing.T) {
				sh := &Shell{Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "X=old"}}
				code, output := runWrapper(t, program, sh, tt.script)
				if code != tt.code || tt.output != "*" && output != tt.output {
					t.Errorf("status %d, output %q; want %d, %q", code, output, tt.code, tt.output)
				}
				if tt.dir != "*" && sh.Dir != tt.dir || tt.x != "*" && value(sh, "X") != tt.x {
					t.Errorf("dir %q, X=%.40q; want %q, %q", sh.Dir, value(sh, "X"), tt.dir, tt.x)
				}
				if (sh.Stale != "") != tt.stale && tt.x != "*" {
					t.Errorf("stale: %q", sh.Stale)
				}
				for _, v := range sh.Env {
					if strings.HasPrefix(v, "__coworker") || strings.HasPrefix(v, "SHLVL") {
						t.Errorf("%q is kept", v)
					}
				}
			})
		}
	}
}

func TestShellGoesOn(t *testing.T) {
	for _, program := range []string{"/bin/bash", "/bin/sh"} {
		t.Run(program, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a b\n")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			sh := &Shell{Env: []string{"PATH=/usr/bin:/bin", "D=" + dir}}
			runWrapper(t, program, sh, `cd "$D"`)
			if sh.Dir != dir {
				t.Fatalf("dir %q, want %q", sh.Dir, dir)
			}
			if _, out := runWrapper(t, program, sh, `printf %s "$PWD"; cd /usr`); out != dir {
				t.Errorf("second script runs in %q", out)
			}
			if _, out := runWrapper(t, program, sh, "cd - >/dev/null && pwd"); out != dir+"\n" {
				t.Errorf("cd - leads to %q", out)
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			code, out := runWrapper(t, program, sh, "true")
			if code != 0 || !strings.Contains(out, "the working folder is gone") {
				t.Errorf("in a folder that is gone: %d %q", code, out)
			}
		})
	}
}

func TestShellXtraceShowsTheScriptOnly(t *testing.T) {
	sh := &Shell{}
	_, out := runWrapper(t, "/bin/bash", sh, "set -x; true")
	if strings.Contains(out, "coworker") {
		t.Errorf("set -x shows %q", out)
	}
}

func TestParseShellState(t *testing.T) {
	end := stateEnd + "\x00"
	for _, tt := range []struct {
		name, in string
		want     *Shell // nil: refused
	}{
		{"ordinary", "/w\x00A=1\x00B=\x00" + end, &Shell{Dir: "/w", Env: []string{"A=1", "B="}}},
		{"no variables", "/w\x00" + end, &Shell{Dir: "/w", Env: []string{}}},
		{"value with equal sign and newline", "/w\x00A=b=c\nD=e\x00" + end, &Shell{Dir: "/w", Env: []string{"A=b=c\nD=e"}}},
		{"loader variables stay", "/w\x00LD_PRELOAD=/x.so\x00BASH_ENV=/x\x00" + end, &Shell{Dir: "/w", Env: []string{"LD_PRELOAD=/x.so", "BASH_ENV=/x"}}},
		{"names that are none", "/w\x00BASH_FUNC_f%%=() { :; }\x001A=1\x00A B=1\x00=x\x00plain\x00A=1\x00" + end, &Shell{Dir: "/w", Env: []string{"A=1"}}},
		{"of one shell", "/w\x00_=/bin/x\x00SHLVL=3\x00PWD=/w\x00OLDPWD=/v\x00" + end, &Shell{Dir: "/w", Env: []string{"OLDPWD=/v"}}},
		{"twice", "/w\x00A=1\x00A=2\x00" + end, &Shell{Dir: "/w", Env: []string{"A=1"}}},
		{"bytes", "/w\xff\x00A=\xff\x00" + end, &Shell{Dir: "/w\xff", Env: []string{"A=\xff"}}},
		{"empty", "", nil},
		{"cut before the end", "/w\x00A=1\x00", nil},
		{"cut in the end", "/w\x00A=1\x00" + end[:5], nil},
		{"end without its NUL", "/w\x00A=1\x00" + stateEnd, nil},
		{"no folder", end, nil},
		{"relative folder", "w\x00" + end, nil},
		{"long folder", "/" + strings.Repeat("a", 5000) + "\x00" + end, nil},
		{"long variable", "/w\x00A=" + strings.Repeat("a", maxVariable) + "\x00" + end, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseShellState([]byte(tt.in))
			if (err == nil) != (tt.want != nil) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func FuzzParseShellState(f *testing.F) {
	f.Add([]byte("/w\x00A=1\x00" + stateEnd + "\x00"))
	f.Add([]byte("\x00\x00" + stateEnd + "\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sh, err := parseShellState(data)
		if err != nil {
			return
		}
		if !filepath.IsAbs(sh.Dir) || sh.Env == nil {
			t.Fatalf("accepted %+v", sh)
		}
		for _, v := range sh.Env {
			name, _, ok := strings.Cut(v, "=")
			if !ok || !variableName.MatchString(name) || strings.IndexByte(v, 0) >= 0 || len(v) > maxVariable {
				t.Fatalf("accepted %q", v)
			}
		}
	})
}

func TestBoundedBufferIsBounded(t *testing.T) {
	b := &boundedBuffer{max: 1000}
	n, err := io.Copy(b, strings.NewReader(strings.Repeat("x", 5000)))
	if err == nil || n > 1000 || len(b.data) > 1000 || !b.over {
		t.Errorf("%d bytes, %v", n, err)
	}
}
