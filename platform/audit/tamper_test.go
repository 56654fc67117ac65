package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"coworker/platform/sqlite"
)

// Each case changes a log of 40 rows the way someone with the database, but
// without the key, could. seq is the first bad row that must be named.
func TestVerifyFindsTampering(t *testing.T) {
	swap := []string{`CREATE TEMP TABLE was AS SELECT 31 - seq AS seq, hashes, record FROM audit_row WHERE seq IN (13, 18)`,
		`UPDATE audit_row SET (hashes, record) = (SELECT hashes, record FROM was WHERE was.seq = audit_row.seq) WHERE seq IN (13, 18)`}
	tests := []struct {
		name       string
		statements []string
		seq        int64
		appendable bool // only Verify can see it, appending reads the right edge alone
	}{
		{"edit a field", []string{`UPDATE audit_row SET record = replace(record, 'exec', 'read') WHERE seq = 17`}, 17, true},
		{"edit white space", []string{`UPDATE audit_row SET record = record || ' ' WHERE seq = 17`}, 17, true},
		{"edit the leaf", []string{`UPDATE audit_row SET hashes = zeroblob(length(hashes)) WHERE seq = 17`}, 17, true},
		{"edit an inner node", []string{`UPDATE audit_row SET hashes = CAST(substr(hashes, 1, 32) || zeroblob(length(hashes) - 32) AS BLOB) WHERE seq = 16`}, 16, true},
		{"edit the right edge", []string{`UPDATE audit_row SET hashes = CAST(substr(hashes, 1, 32) || zeroblob(length(hashes) - 32) AS BLOB) WHERE seq = 40`}, 40, false},
		{"extra node", []string{`UPDATE audit_row SET hashes = CAST(hashes || zeroblob(32) AS BLOB) WHERE seq = 17`}, 17, true},
		{"delete a row", []string{`DELETE FROM audit_row WHERE seq = 17`}, 17, true},
		{"delete and renumber", []string{`DELETE FROM audit_row WHERE seq = 17`, `UPDATE audit_row SET seq = seq - 1 WHERE seq > 17`}, 17, false},
		{"delete the first row", []string{`DELETE FROM audit_row WHERE seq = 1`}, 1, true},
		{"swap two rows", swap, 13, true},
		{"truncate", []string{`DELETE FROM audit_row WHERE seq > 33`}, 34, false},
		{"truncate all", []string{`DELETE FROM audit_row`}, 1, false},
		{"truncate with head", []string{`DELETE FROM audit_row WHERE seq > 33`, `UPDATE audit_head SET note = (SELECT note FROM audit_checkpoint WHERE size = 30)`}, 31, false},
		{"drop the head", []string{`DELETE FROM audit_head`}, 1, false},
		{"damage the head", []string{`UPDATE audit_head SET note = replace(note, 'size 40', 'size 39')`}, 0, false},
		{"damage a checkpoint", []string{`UPDATE audit_checkpoint SET note = replace(note, 'size', 'sise')`}, 0, true},
		{"forge a checkpoint", []string{`UPDATE audit_checkpoint SET note = replace(note, 'time 2026', 'time 2025')`}, 0, true},
		{"add a row", []string{`INSERT INTO audit_row (seq, hashes, record) SELECT 41, hashes, replace(record, '"seq":39', '"seq":41') FROM audit_row WHERE seq = 39`}, 41, false},
		{"add row zero", []string{`INSERT INTO audit_row (seq, hashes, record) SELECT 0, hashes, record FROM audit_row WHERE seq = 1`}, 1, true},
		{"add a trigger", []string{`CREATE TRIGGER quiet BEFORE INSERT ON audit_row BEGIN SELECT RAISE(IGNORE); END`}, 0, false},
		{"add an index", []string{`CREATE INDEX audit_other ON audit_row (tool)`}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := context.Background()
			dir := t.TempDir()
			l, db := openIn(t, dir)
			fillLog(t, l, 30)
			if _, err := l.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			fillLog(t, l, 10)
			if _, err := l.Verify(ctx); err != nil {
				t.Fatalf("before: %v", err)
			}
			change(t, db, tt.statements...)
			_, err := l.Verify(ctx)
			var tamper *TamperError
			if !errors.As(err, &tamper) || tamper.Row != tt.seq || !errors.Is(err, ErrTampered) {
				t.Errorf("Verify: %v, want a TamperError for row %d", err, tt.seq)
			}
			if strings.HasPrefix(tt.name, "swap") {
				if _, err := l.List(ctx, Filter{}); !errors.As(err, &tamper) || tamper.Row != 18 {
					t.Errorf("List: %v, want a TamperError for row 18", err)
				}
			}
			// A process that starts now must not sign over the change.
			fresh, err := Open(ctx, db, config(dir))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fresh.Append(ctx, Row{Stage: "after"}); (err == nil) != tt.appendable {
				t.Errorf("Append after: %v", err)
			}
		})
	}
}

// Whoever recomputes every node as well is stopped by the signatures; the
// report narrows it down to the rows since the last checkpoint that holds.
func TestVerifyFindsRecomputedTree(t *testing.T) {
	ctx := context.Background()
	l, db := openIn(t, t.TempDir())
	fillLog(t, l, 30)
	if _, err := l.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	fillLog(t, l, 10)
	recompute(t, l, db, 35)
	_, err := l.Verify(ctx)
	var tamper *TamperError
	if !errors.As(err, &tamper) || tamper.Row != 31 || tamper.Last != 40 {
		t.Errorf("Verify: %v, want rows 31 to 40", err)
	}
	recompute(t, l, db, 12)
	_, err = l.Verify(ctx)
	if !errors.As(err, &tamper) || tamper.Row != 1 || tamper.Last != 30 {
		t.Errorf("Verify: %v, want rows 1 to 30", err)
	}
}

// recompute edits one row and rebuilds all stored nodes.
func recompute(t *testing.T, l *Log, db *sqlite.DB, seq int64) {
	t.Helper()
	change(t, db, fmt.Sprintf(`UPDATE audit_row SET record = replace(record, 'exec', 'read') WHERE seq = %d`, seq))
	var e edge
	var statements []string
	err := l.each(context.Background(), "SELECT seq, record FROM audit_row ORDER BY seq", nil, func(_ int64, record string) error {
		hashes := e.add(tlog.RecordHash([]byte(record)), nil)
		statements = append(statements, fmt.Sprintf("UPDATE audit_row SET hashes = x'%x' WHERE seq = %d", hashes, e.size))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	change(t, db, statements...)
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(to, e.Name()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An old copy of the whole folder, key included, is consistent in itself. Only
// a checkpoint kept elsewhere shows that it is old.
func TestReplayedFolderMeetsExternalCheckpoint(t *testing.T) {
	ctx := context.Background()
	dir, old := t.TempDir(), filepath.Join(t.TempDir(), "old")
	l, _ := openIn(t, dir)
	fillLog(t, l, 20)
	early, err := l.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	copyFolder(t, dir, old)
	fillLog(t, l, 5)
	late, err := l.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Verify(ctx, early, late); err != nil {
		t.Fatalf("the true log: %v", err)
	}
	replayed, _ := openIn(t, old)
	if _, err := replayed.Verify(ctx, early); err != nil {
		t.Fatalf("the old copy against the old checkpoint: %v", err)
	}
	_, err = replayed.Verify(ctx, late)
	var tamper *TamperError
	if !errors.As(err, &tamper) || tamper.Row != 21 || tamper.Last != 25 {
		t.Errorf("the old copy against the new checkpoint: %v, want rows 21 to 25", err)
	}
	// Grown past the checkpoint again, with other rows.
	fillLog(t, replayed, 9)
	_, err = replayed.Verify(ctx, early, late)
	if !errors.As(err, &tamper) || tamper.Row != 21 || tamper.Last != 25 {
		t.Errorf("the forked copy: %v, want rows 21 to 25", err)
	}
}

func TestChangedKey(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	l, db := openIn(t, dir)
	fillLog(t, l, 5)
	kept, err := l.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.key")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, db, config(dir)); !errors.Is(err, ErrKey) {
		t.Errorf("missing key: %v, want ErrKey", err)
	}
	// Another log's key in its place.
	other := t.TempDir()
	openIn(t, other)
	foreign, err := os.ReadFile(filepath.Join(other, "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(good, foreign) {
		t.Fatal("two logs have one key")
	}
	if err := os.WriteFile(path, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	changed, err := Open(ctx, db, config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := changed.Append(ctx, Row{Stage: "x"}); !errors.Is(err, ErrKey) || !errors.Is(err, ErrNotRecorded) {
		t.Errorf("Append with another key: %v", err)
	}
	if _, err := changed.Verify(ctx); err == nil {
		t.Error("Verify with another key succeeded")
	}
	if _, err := changed.Verify(ctx, kept); !errors.Is(err, ErrTampered) {
		t.Errorf("Verify of a checkpoint of the old key: %v", err)
	}
	for name, data := range map[string][]byte{"empty": nil, "cut": good[:30], "title": bytes.ToUpper(good)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ctx, db, config(dir)); !errors.Is(err, ErrKey) {
			t.Errorf("%s key: %v, want ErrKey", name, err)
		}
	}
}

func TestAppendNoticesTriggerThatDropsRows(t *testing.T) {
	l, db := openIn(t, t.TempDir())
	fillLog(t, l, 3)
	change(t, db, `CREATE TRIGGER quiet BEFORE INSERT ON audit_row BEGIN SELECT RAISE(IGNORE); END`)
	if _, err := l.Append(context.Background(), Row{Stage: "x"}); !errors.Is(err, ErrTampered) || !errors.Is(err, ErrNotRecorded) {
		t.Errorf("error = %v, want ErrTampered", err)
	}
}

func TestCorruptDatabaseIsTyped(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "coworker.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(ctx, path, Schema1); !errors.Is(err, sqlite.ErrCorrupt) {
		t.Errorf("Open: %v, want ErrCorrupt", err)
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(`{"v":1,"seq":1,"time":"2026-01-02T03:04:05.000000006Z"}`))
	f.Add([]byte(`{"v":1,"seq":7,"time":"2026-01-02T03:04:05.000000006Z","args":{"a":[1,"<é>\u2028"]},"walls":["read"]}`))
	f.Add([]byte(`{"v":1,"seq":1,"seq":2,"time":"2026-01-02T03:04:05.000000006Z"}`))
	f.Add([]byte(`{"seq":1,"v":1,"time":"x"}`))
	f.Add([]byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		row, err := decodeRow(data)
		if err != nil {
			return
		}
		if row.Seq < 1 || row.Leaf != tlog.RecordHash(data) || !bytes.HasPrefix(data, []byte(prefix(row.Seq))) {
			t.Errorf("%q decoded to %+v", data, row)
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add("coworker audit log v1\norigin ab\nsize 1\nroot AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\ntime 2026-01-02T03:04:05.000000006Z\n\nsignature AAAA\n")
	f.Add("coworker audit log v1\n\n\n\n\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseCheckpoint(text); err == nil && c.String() != text {
			t.Errorf("%q reads as %q", text, c.String())
		}
	})
}
