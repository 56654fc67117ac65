package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, path string, steps ...Migration) *DB {
	t.Helper()
	db, err := Open(context.Background(), path, steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func count(t *testing.T, db *DB) (n int) {
	t.Helper()
	ctx := context.Background()
	if err := db.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT count(*) FROM thing").Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func insert(db *DB) error {
	ctx := context.Background()
	return db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO thing (text) VALUES ('x')")
		return err
	})
}

func TestPragmas(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	// Twice: the second time the file exists and the mode comes from it.
	for range 2 {
		db, err := Open(ctx, path, testSchema...)
		if err != nil {
			t.Fatal(err)
		}
		for _, pool := range []struct {
			name string
			run  func(context.Context, func(*sql.Tx) error) error
			want map[string]string
		}{
			{"writer", db.Write, map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000", "query_only": "0", "trusted_schema": "0"}},
			{"reader", db.Read, map[string]string{"journal_mode": "wal", "busy_timeout": "10000", "query_only": "1", "trusted_schema": "0"}},
		} {
			for pragma, want := range pool.want {
				var got string
				if err := pool.run(ctx, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got) }); err != nil || got != want {
					t.Errorf("%s: %s = %q, %v; want %q", pool.name, pragma, got, err, want)
				}
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadPoolCannotWrite(t *testing.T) {
	ctx := context.Background()
	db := open(t, filepath.Join(t.TempDir(), "db"), testSchema...)
	err := db.Read(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO thing (text) VALUES ('x')")
		return err
	})
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("error = %v, want ErrReadOnly", err)
	}
	if n := count(t, db); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "db"), testSchema...)
	if err := insert(db); err != nil {
		t.Fatal(err)
	}
	count(t, db)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d files, %v; want database, log and index", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode().Perm())
		}
	}
}

func TestOddPaths(t *testing.T) {
	names := []string{"plain", "a?mode=ro", "a#b", "100%", "a b", "a%20b", "ümlaut", "file:x", "a&_pragma=x"}
	if runtime.GOOS != "windows" {
		names = append(names, "new\nline", "bad\xff\xfeutf8")
	} else {
		names = []string{"plain", "a#b", "100%", "a b", "a%20b", "ümlaut"}
	}
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name, "db"+name)
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		db := open(t, path, testSchema...)
		if err := insert(db); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q: the rows went elsewhere: %v", name, err)
		}
	}
}

func TestMigrations(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	steps := []Migration{
		testSchema[0],
		{"more", `ALTER TABLE thing ADD COLUMN more TEXT; CREATE INDEX thing_more ON thing (more)`},
		{"broken", `CREATE TABLE half (id INTEGER); CREATE TABLE thing (id INTEGER)`},
	}
	db, err := Open(ctx, path, steps[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(insert(db), db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, path, steps...)
	if err == nil || !strings.Contains(err.Error(), "migration 3 (broken)") {
		t.Fatalf("broken step: %v", err)
	}
	// The good step before it stayed, the broken one left nothing.
	db = open(t, path, steps[:2]...)
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows after the migration, want 1", n)
	}
	if v, err := db.version(ctx); err != nil || v != 2 {
		t.Errorf("version %d, %v; want 2", v, err)
	}
	err = db.Read(ctx, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "SELECT * FROM half"); return err })
	if err == nil {
		t.Error("half of the broken step is there")
	}
	_, err = Open(ctx, path, steps[0])
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "version 2, this program knows up to 1") {
		t.Errorf("older program: %v, want ErrNewer", err)
	}
}

func TestOpenRaces(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "db")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				db, err := Open(context.Background(), path, testSchema...)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(insert(db), db.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := count(t, open(t, path, testSchema...)); n != 8 {
			t.Errorf("%d rows, want 8", n)
		}
	}
}

func TestWriteRollsBack(t *testing.T) {
	ctx := context.Background()
	db := open(t, filepath.Join(t.TempDir(), "db"), testSchema...)
	mine := errors.New("mine")
	err := db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO thing (text) VALUES ('x')"); err != nil {
			return err
		}
		return mine
	})
	if err != mine {
		t.Errorf("error = %v, want the caller's own", err)
	}
	if n := count(t, db); n != 0 {
		t.Errorf("%d rows, want 0", n)
	}
}

func TestRefusedFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(path string) error
		want  error
	}{
		{"no folder", func(path string) error { return os.Remove(filepath.Dir(path)) }, fs.ErrNotExist},
		{"folder", func(path string) error { return os.Mkdir(path, 0o700) }, nil},
		{"symbolic link", func(path string) error {
			return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Symlink(path+"2", path))
		}, nil},
		{"dangling link", func(path string) error { return os.Symlink("/nonexistent/x", path) }, nil},
		{"no database", func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("text ", 1000)), 0o600) }, ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sub", "db")
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), tt.plant(path)); err != nil {
				t.Fatal(err)
			}
			db, err := Open(context.Background(), path, testSchema...)
			if err == nil {
				t.Fatal("it was opened", db.Close())
			}
			var typed *Error
			if !errors.As(err, &typed) || typed.Path != path || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want *Error for the file and %v", err, tt.want)
			}
		})
	}
}

func TestCorruptPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(context.Background(), path, testSchema...)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := insert(db); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), 4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := insert(open(t, path, testSchema...)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error = %v, want ErrCorrupt", err)
	}
}

func TestUseAfterEnd(t *testing.T) {
	ctx := context.Background()
	for name, end := range map[string]func(*DB) error{
		"close": (*DB).Close,
		"leave": func(db *DB) error { db.Leave(); return nil },
	} {
		path := filepath.Join(t.TempDir(), "db")
		db, err := Open(ctx, path, testSchema...)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(insert(db), end(db)); err != nil {
			t.Fatal(err)
		}
		if err := insert(db); err == nil {
			t.Errorf("%s: a write went through", name)
		}
		if err := db.Read(ctx, func(*sql.Tx) error { return nil }); err == nil {
			t.Errorf("%s: a read went through", name)
		}
		if n := count(t, open(t, path, testSchema...)); n != 1 {
			t.Errorf("%s: %d rows, want 1", name, n)
		}
		if name == "leave" {
			_ = db.writer.Close() // what the end of the process would do
		}
	}
}

func TestErrorText(t *testing.T) {
	err := &Error{Op: "write", Path: "/x/db", Err: classify(fmt.Errorf("wrapped: %w", fs.ErrExist))}
	if got := err.Error(); got != "database write: /x/db: wrapped: file already exists" {
		t.Errorf("text = %q", got)
	}
}
