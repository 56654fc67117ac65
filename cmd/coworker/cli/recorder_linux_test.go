package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/audit"
	"coworker/platform/paths"
	"coworker/platform/redact"
	"coworker/runtime/session"
)

func testDirs(t *testing.T) paths.Dirs {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	d, err := paths.Resolve(func(name string) string {
		if name == "COWORKER_HOME" {
			return home
		}
		return ""
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func testRecorder(t *testing.T, d paths.Dirs) *recorder {
	t.Helper()
	redactor := redact.New(redact.Secret{Name: "TOKEN", Value: "swordfish77"})
	r := newRecorder(context.Background(), d, redactor, time.Now, audit.Row{Actor: "ada", Workspace: "/w", Tool: "exec"})
	t.Cleanup(func() {
		r.opened.Wait()
		if rec, err := r.open(); err == nil {
			rec.db.Close()
		}
	})
	return r
}

func TestRecorderStoresStartWithTheFirstCommand(t *testing.T) {
	ctx := context.Background()
	r := testRecorder(t, testDirs(t))
	id, err := r.Attest(ctx, []byte(`{"version":1}`))
	if err != nil {
		t.Fatal(err)
	}
	walls := map[enforce.Wall]enforce.WallState{enforce.Kernel: {Verified: true}, enforce.Res: {}}
	count := func() []audit.Row {
		rec, err := r.open()
		if err != nil {
			t.Fatal(err)
		}
		rows, err := rec.log.List(ctx, audit.Filter{Oldest: true})
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if err := r.Record(ctx, id, session.Event{Stage: "start", Status: "ok", Level: enforce.Enforced, Walls: walls}); err != nil {
		t.Fatal(err)
	}
	if rows := count(); len(rows) != 0 {
		t.Errorf("%d rows before the first command, want none: the start shares its commit", len(rows))
	}
	r.name("s1")
	argv := []string{"curl", "-H", "Authorization: Bearer swordfish77"}
	if err := r.Record(ctx, id, session.Event{Stage: "exec", Status: "started", Args: argv, Level: enforce.Enforced, Walls: walls}); err != nil {
		t.Fatal(err)
	}
	rows := count()
	if len(rows) != 2 || rows[0].Stage != "start" || rows[1].Stage != "exec" {
		t.Fatalf("rows %+v", rows)
	}
	for _, row := range rows {
		if row.Session != "s1" || row.Attestation != id || row.Level != "enforced" || len(row.Walls) != 1 || row.Walls[0] != "kernel" {
			t.Errorf("row %+v", row)
		}
	}
	if text := rowText(rows[1]); text == "" || strings.Contains(text, "swordfish") {
		t.Errorf("row text %q", text)
	}
	if rows[1].ActionDigest != actionDigest(argv, "/w") {
		t.Errorf("action digest %s", rows[1].ActionDigest)
	}
	rec, _ := r.open()
	if _, err := rec.log.Verify(ctx); err != nil {
		t.Error(err)
	}
	if doc, err := rec.log.Attestation(ctx, id); err != nil || string(doc) != `{"version":1}` {
		t.Errorf("attestation %q, %v", doc, err)
	}
}

// TestRecorderRefuses: whatever is wrong with the record, the event that announces an action is an error.
func TestRecorderRefuses(t *testing.T) {
	announce := session.Event{Stage: "exec", Status: "started", Args: []string{"true"}}
	for name, breakIt := range map[string]func(t *testing.T, d paths.Dirs){
		"damaged": func(t *testing.T, d paths.Dirs) {
			if err := os.WriteFile(filepath.Join(d.State, "coworker.db"), []byte("garbage that is no database at all"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"folder in its place": func(t *testing.T, d paths.Dirs) {
			if err := os.Mkdir(filepath.Join(d.State, "coworker.db"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"key is no key": func(t *testing.T, d paths.Dirs) {
			if err := os.WriteFile(filepath.Join(d.State, "audit.key"), []byte("short"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := testDirs(t)
			if err := d.Make(); err != nil {
				t.Fatal(err)
			}
			breakIt(t, d)
			err := testRecorder(t, d).Record(context.Background(), "", announce)
			if !errors.Is(err, audit.ErrNotRecorded) || ExitCode(err) != exitInternal {
				t.Errorf("error %v, exit code %d", err, ExitCode(err))
			}
		})
	}
}
