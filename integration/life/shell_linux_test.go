package life

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/runtime/session"
)

// TestShell runs scripts one after the other in a session, as one shell would.
func TestShell(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := newPlace(t)
		plant(t, p.Workspace, map[string]string{"sub/file": "x\n"})
		s := opened(t, p)
		shell := &session.Shell{}
		for _, tt := range []struct {
			script, output string
			code           int
			stale          bool
		}{
			{"cd sub && export A='1 2'", "", 0, false},
			{`cat file; echo "$A"; basename "$PWD"`, "x\n1 2\nsub\n", 0, false},
			{"export A=3; exit 7", "", 7, false},
			{`echo $A; kill -9 $$`, "3\n", 137, true},
			{"export A=4; set -e; false", "", 1, false},
			{`echo $A; if`, "*", 2, false},
			{`echo $A; A=5`, "4\n", 0, false},
			{`export BIG=$(head -c 1100000 /dev/zero | tr '\0' a)`, "*", 0, true},
			{`for i in $(seq 20); do export V$i=$(head -c 60000 /dev/zero | tr '\0' a); done`, "", 0, true},
			{`echo $A $V1`, "5\n", 0, false},
			{"rmdir /nowhere 2>/dev/null; cd ..; rm -r sub; mkdir sub; cd sub", "", 0, false},
			{"rmdir ../sub", "", 0, false},
			{"echo $A", "*", 0, false},
		} {
			var out strings.Builder
			r, err := s.RunShell(context.Background(), shell, tt.script, session.Command{Stdout: &out, Stderr: &out, Timeout: time.Minute})
			if err != nil || r.Code != tt.code || tt.output != "*" && out.String() != tt.output {
				t.Errorf("%q: status %d, %q, %v; want %d, %q", tt.script, r.Code, out.String(), err, tt.code, tt.output)
			}
			if (shell.Stale != "") != tt.stale {
				t.Errorf("%q: stale %q", tt.script, shell.Stale)
			}
			if tt.stale {
				shell.Stale = ""
			}
		}
		if left, _ := sh(t, s, "ls -A /tmp | grep shell-"); left != "" {
			t.Errorf("left in /tmp: %q", left)
		}
		for _, bad := range []string{"a\x00b", strings.Repeat("#", 1<<20)} {
			if _, err := s.RunShell(context.Background(), shell, bad, session.Command{}); err == nil {
				t.Errorf("a script of %d bytes is taken", len(bad))
			}
		}
	})
}

// TestHostileShellState: whatever a script leaves where the state belongs, the next script runs.
func TestHostileShellState(t *testing.T) {
	s := opened(t, newPlace(t))
	for name, script := range map[string]string{
		"pipe":        `rm -f "$f"; mkfifo "$f"`,
		"folder":      `rm -f "$f"; mkdir "$f"`,
		"link":        `rm -f "$f"; ln -s /dev/zero "$f"`,
		"endless":     `head -c 3000000 /dev/zero >"$f"`,
		"garbage":     `head -c 3000 /dev/urandom >"$f"`,
		"relative":    `printf 'x\0A=1\0coworker-shell-state-ends\0' >"$f"`,
		"no variable": `printf '/\0%%\0coworker-shell-state-ends\0' >"$f"`,
	} {
		t.Run(name, func(t *testing.T) {
			shell := &session.Shell{Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "KEEP=1"}}
			// The trap of the wrapper is replaced by one that knows the wrapper's file.
			_, err := s.RunShell(context.Background(), shell, `f=$__coworker_file; trap '`+script+`' EXIT; exit 0`, session.Command{Stdout: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			kept := strings.Join(shell.Env, " ")
			if name != "no variable" && (shell.Stale == "" || !strings.Contains(kept, "KEEP=1")) {
				t.Errorf("state %+v", shell)
			}
			if out, r := sh(t, s, "echo fine"); r.Code != 0 || out != "fine\n" {
				t.Errorf("%q %+v", out, r)
			}
		})
	}
}

// TestDiskAllowance: a session that uses more than it may ends with the limit's name.
func TestDiskAllowance(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := newPlace(t)
		var rows []session.Event
		s, err := open(t, p, func(o *session.Options) {
			o.Disk, o.DiskInterval = 1<<30, 10*time.Millisecond
			o.Spec.Limits.Named = []string{"disk"}
			o.Recorder = recorder{&rows}
		})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := s.Attestation()
		var limit enforce.Limit
		for _, l := range a.Limits {
			if l.Name == "disk" {
				limit = l
			}
		}
		if !limit.Active || !limit.Named || limit.Value != 1<<30 || limit.Mechanism != enforce.Supervisor {
			t.Errorf("limit %+v", limit)
		}
		// fallocate takes the space without writing it.
		_, err = s.Run(context.Background(), session.Command{Argv: []string{"/usr/bin/fallocate", "-l", "3G", "big"}})
		var hit *session.LimitError
		if !errors.As(err, &hit) || hit.Limit != "disk" || hit.Hint() == "" {
			t.Errorf("got %v", err)
		}
		if _, err := s.Run(context.Background(), session.Command{Argv: []string{"/bin/true"}}); !errors.As(err, &hit) {
			t.Errorf("the next command: %v", err)
		}
		found := false
		for _, d := range s.Denials() {
			found = found || d.Source == "limit" && strings.Contains(d.What, "disk")
		}
		if !found {
			t.Errorf("denials %+v", s.Denials())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// Where kernel programs tell of programs that ran, their rows may come after it.
		if !slices.ContainsFunc(rows, func(e session.Event) bool { return e.Stage == "limit" }) {
			t.Errorf("rows %+v", rows)
		}
		if err := os.Remove(filepath.Join(p.Workspace, "big")); err != nil {
			t.Error(err)
		}
		wantClean(t, p)
	})
}

// recorder keeps rows; the session calls it from one goroutine at a time here.
type recorder struct{ rows *[]session.Event }

func (recorder) Attest(context.Context, []byte) (string, error) { return "id", nil }

func (r recorder) Record(_ context.Context, _ string, rows ...session.Event) error {
	*r.rows = append(*r.rows, rows...)
	return nil
}
