package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/workfs"
	"coworker/runtime/changes"
	"coworker/runtime/wallspec"
)

// stageFor makes a staged session of a folder, as a session would leave it.
func stageFor(t *testing.T, home, work string, edit func(upper string)) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := changes.OpenStore(filepath.Join(home, "state", "changes"))
	check(err)
	info, err := os.Stat(work)
	check(err)
	st, err := store.Create(t.Context(), changes.Request{
		Session: "s1", Workspace: work, UID: os.Geteuid(), GID: os.Getegid(), Now: time.Now(),
		Trees: []enforce.Tree{{Path: work, Writable: true, Inode: info.Sys().(*syscall.Stat_t).Ino}},
	})
	check(err)
	root, err := workfs.OpenRoot(work)
	check(err)
	defer root.Close()
	check(st.Baseline(t.Context(), 0, root))
	edit(filepath.Join(st.Folder(0), "upper"))
	check(st.Ended())
	check(st.Close())
}

type changesRun struct {
	t    *testing.T
	home string
}

func (r changesRun) run(want int, args ...string) (stdout, stderr string) {
	r.t.Helper()
	in, err := os.Open(os.DevNull)
	if err != nil {
		r.t.Fatal(err)
	}
	defer in.Close()
	var out, errs bytes.Buffer
	code := Report(&errs, Run(r.t.Context(), append([]string{"coworker", "changes"}, args...), Streams{In: in, Out: &out, Err: &errs}))
	if code != want {
		r.t.Fatalf("changes %v: exit code %d, want %d\n%s%s", args, code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

// TestChangesCommand goes through a staged session's life as a person sees it.
func TestChangesCommand(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("COWORKER_HOME", home)
	t.Chdir(work)
	put := func(dir, rel, content string) {
		t.Helper()
		full := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(work, "a.txt", "one\ntwo\n")
	put(work, "both.txt", "base\n")
	put(work, "old.txt", "moved content\n")
	put(work, ".env", "SECRET=value12345\n")
	r := changesRun{t, home}
	out, _ := r.run(0)
	// Root also sees the sessions that it ran for other users; their folder is the machine's and no COWORKER_HOME moves it.
	if others, _ := os.ReadDir(wallspec.StageStore(wallspec.Host{}, -1)); len(others) == 0 || os.Geteuid() != 0 {
		has(t, out, "no session has staged changes")
	}
	if strings.Contains(out, work) {
		t.Errorf("a session of %s before there was one:\n%s", work, out)
	}
	if err := os.MkdirAll(filepath.Join(home, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	stageFor(t, home, work, func(upper string) {
		put(upper, "a.txt", "one\nTWO\x1b[31m\u202e\n")
		put(upper, "both.txt", "session\n")
		put(upper, "new/bin", "\x00\x01")
		put(upper, "new/old.txt", "moved content\n")
		put(upper, ".envrc", "evil")
		put(upper, ".env", "SECRET=other12345\n")
		if err := syscall.Mknod(filepath.Join(upper, "old.txt"), syscall.S_IFCHR, 0); err != nil {
			t.Fatal(err)
		}
	})
	put(work, "both.txt", "person\n")

	out, _ = r.run(0, "list")
	has(t, out, "s1", "ended, 1 conflicts")
	out, _ = r.run(0, "list", "s1")
	has(t, out, "modified", "a.txt", "conflict", "both.txt", "edited on the host since", ".envrc", "held")
	out, _ = r.run(0, "diff")
	has(t, out, "-two", `+TWO\x1b[31m\u202e`, "binary", "sha256", "moved from old.txt", "a secret: not shown")
	if strings.Contains(out, "12345") || strings.Contains(out, "\x1b") {
		t.Errorf("a secret or a control character is shown:\n%s", out)
	}
	out, _ = r.run(0, "diff", "--json", "--path", "a.txt")
	var doc struct {
		Changes []struct{ Path, Diff string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Changes) != 1 || doc.Changes[0].Path != "a.txt" {
		t.Errorf("%v %+v", err, doc)
	}
	_, errs := r.run(122, "apply", "--yes")
	has(t, errs, "--take staged")
	r.run(122, "apply", "--take", "leave")
	r.run(123, "apply", "--take", "both")
	out, errs = r.run(1, "apply", "--yes", "--take", "leave")
	has(t, out, "applied")
	has(t, errs, "both.txt", "coworker held keep")
	if got, _ := os.ReadFile("a.txt"); !strings.HasPrefix(string(got), "one\nTWO") {
		t.Errorf("%q", got)
	}
	if got, _ := os.ReadFile(".env"); string(got) != "SECRET=value12345\n" {
		t.Errorf("%q", got)
	}
	if _, err := os.Lstat(".envrc"); err == nil {
		t.Error("a protected file was applied")
	}
	r.run(0, "apply", "--yes", "--take", "staged")
	r.run(0, "undo")
	r.run(0, "undo")
	r.run(1, "undo")
	if got, _ := os.ReadFile("a.txt"); string(got) != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	if got, _ := os.ReadFile("both.txt"); string(got) != "person\n" {
		t.Errorf("%q", got)
	}
	r.run(122, "discard")
	r.run(0, "discard", "--yes")
	r.run(1, "diff", "s1")
	rows := auditRows(t)
	for _, want := range []string{"apply started", "apply ok", "apply partly", "held ok", "undo ok", "discard ok"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no row %q in:\n%s", want, rows)
		}
	}
}

func auditRows(t *testing.T) string {
	t.Helper()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"coworker", "audit", "list", "--json"}, Streams{In: in, Out: &out, Err: &out}); err != nil {
		t.Fatal(err, out.String())
	}
	var b strings.Builder
	var rows []struct{ Stage, Status, Level string }
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err, out.String())
	}
	for _, row := range rows {
		if row.Level != "outside" {
			t.Errorf("level %q", row.Level)
		}
		b.WriteString(row.Stage + " " + row.Status + "\n")
	}
	return b.String()
}
