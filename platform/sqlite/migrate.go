package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// Migration is one step of the schema. Steps are never edited or reordered
// once released: their position is the version that the file records.
type Migration struct {
	Name string // what it makes, for errors
	SQL  string
}

// migrate applies the steps that the file lacks, each in one transaction with
// its version number, so a crash leaves a whole step or none.
func (db *DB) migrate(ctx context.Context, steps []Migration) error {
	version, err := db.version(ctx)
	if err != nil {
		return err
	}
	for version < len(steps) {
		version, err = db.step(ctx, steps)
		if err != nil {
			return err
		}
	}
	if version > len(steps) {
		return &Error{Op: "open", Path: db.path,
			Err: fmt.Errorf("%w: its schema is version %d, this program knows up to %d", ErrNewer, version, len(steps))}
	}
	return nil
}

func (db *DB) version(ctx context.Context) (int, error) {
	var v int
	if err := db.writer.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, &Error{Op: "open", Path: db.path, Err: classify(err)}
	}
	return v, nil
}

// step applies the next step and returns the new version. The version is read
// again under the write lock: another process may have been faster.
func (db *DB) step(ctx context.Context, steps []Migration) (version int, err error) {
	err = db.Write(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if version >= len(steps) {
			return nil
		}
		if _, err := tx.ExecContext(ctx, steps[version].SQL); err != nil {
			return fmt.Errorf("migration %d (%s): %w", version+1, steps[version].Name, err)
		}
		version++
		// A PRAGMA takes no parameters; version is an int.
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
	return version, err
}
