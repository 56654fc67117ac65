package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
)

var testSchema = []Migration{{"things", `CREATE TABLE thing (id INTEGER PRIMARY KEY, text TEXT) STRICT`}}

// The path of `coworker exec`: a warm file, one row, and out.
func BenchmarkOpenWriteClose(b *testing.B) {
	ctx := context.Background()
	path := filepath.Join(b.TempDir(), "db")
	for b.Loop() {
		db, err := Open(ctx, path, testSchema...)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Write(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO thing (text) VALUES ('row')")
			return err
		}); err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenClose(b *testing.B) {
	ctx := context.Background()
	path := filepath.Join(b.TempDir(), "db")
	for b.Loop() {
		db, err := Open(ctx, path, testSchema...)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	ctx := context.Background()
	db, err := Open(ctx, filepath.Join(b.TempDir(), "db"), testSchema...)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for b.Loop() {
		if err := db.Write(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO thing (text) VALUES ('row')")
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}
