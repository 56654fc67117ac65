// Package sqlite opens Coworker's database: one file, one writer handle, a
// read pool, and a schema that only moves forward.
//
// Packages that own tables import it (audit, later the session store). It must
// not learn any table: each owner hands its migrations in, and the program
// puts them in order. Nothing behind the wall may import it.
//
// Durability is chosen once, here: write-ahead log with synchronous=FULL, so a
// transaction that committed survives a power cut, not only a crash
// (https://www.sqlite.org/pragma.html#pragma_synchronous).
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	driver "modernc.org/sqlite"
)

// busyTimeout is how long a statement waits for another process's lock. It is
// long next to any transaction of ours and short next to a person's patience.
const busyTimeout = "10000"

// checkpointPages bounds the write-ahead log, a fifth of SQLite's default: after
// Leave the next process reads all of it before its first statement.
const checkpointPages = "200"

// readers bounds the read pool: enough for a console and a few listings.
const readers = 4

// DB is an open database. Its methods may be called from several goroutines.
type DB struct {
	path   string
	writer *sql.DB

	mu     sync.Mutex
	reader *sql.DB // opened at the first read: the exec path only writes
	closed bool
}

// Open opens or creates the database at path and brings its schema to the last
// of migrations. The file must be a private regular file of this user.
func Open(ctx context.Context, path string, migrations ...Migration) (_ *DB, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := createPrivate(path); err != nil {
		return nil, &Error{Op: "open", Path: path, Err: classify(err)}
	}
	// fdatasync writes what is needed to read the data back (fdatasync(2)); it
	// saves a journal commit for the time stamps on ext4. It does not exist on
	// macOS and Windows, where the default stays.
	if _, err := driver.Fdatasync(true); err != nil && !errors.Is(err, driver.ErrFdatasyncUnavailable) {
		return nil, &Error{Op: "open", Path: path, Err: err}
	}
	writer, err := pool(path, writerParams())
	if err != nil {
		return nil, &Error{Op: "open", Path: path, Err: classify(err)}
	}
	// One connection: SQLite has one writer at a time anyway, and waiting in
	// Go's queue is fair and cancellable where the busy handler polls.
	writer.SetMaxOpenConns(1)
	db := &DB{path: path, writer: writer}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if err := db.migratePatiently(ctx, migrations); err != nil {
		return nil, err
	}
	return db, nil
}

// openPatience bounds the attempts to open a database that others open, too.
const (
	openPatience = 10 * time.Second
	openPause    = 5 * time.Millisecond
)

// migratePatiently tries again while others are busy. SQLite gives SQLITE_BUSY at once, without
// asking the busy handler, when two connections switch a new file to WAL or recover its log at the
// same time (https://www.sqlite.org/wal.html, "Sometimes Queries Return SQLITE_BUSY In WAL Mode").
func (db *DB) migratePatiently(ctx context.Context, migrations []Migration) error {
	for deadline := time.Now().Add(openPatience); ; {
		err := db.migrate(ctx, migrations)
		if err == nil || !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(openPause):
		}
	}
}

func writerParams() url.Values {
	return url.Values{
		"_txlock": {"immediate"},
		// journal_mode is stored in the file; asking again heals a copy that
		// was restored without it.
		"_pragma": {"busy_timeout(" + busyTimeout + ")", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "trusted_schema(0)",
			"wal_autocheckpoint(" + checkpointPages + ")"},
	}
}

func readerParams() url.Values {
	return url.Values{
		"_pragma": {"busy_timeout(" + busyTimeout + ")", "query_only(1)", "trusted_schema(0)"},
	}
}

func pool(path string, params url.Values) (*sql.DB, error) {
	// A file: URI, because a plain name would be cut at its first '?'
	// (https://www.sqlite.org/uri.html).
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // file:///C:/…
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: params.Encode()}
	connector, err := driver.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// createPrivate makes an empty 0600 file, which SQLite takes for an empty
// database and whose mode it copies to the -wal and -shm files, or checks the
// one that is there. It never opens an existing database: closing any
// descriptor of a file drops this process's POSIX locks on it (fcntl(2)).
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file (%s)", info.Mode().Type())
	}
	return checkPrivate(info)
}

// Path returns the absolute name of the database file.
func (db *DB) Path() string { return db.path }

// Write runs f in one IMMEDIATE transaction: the write lock is taken before
// the first statement, so what f reads cannot change before it commits. It
// commits if f returns nil and is durable when Write returns nil.
func (db *DB) Write(ctx context.Context, f func(*sql.Tx) error) error {
	if db.left() {
		return &Error{Op: "write", Path: db.path, Err: sql.ErrConnDone}
	}
	return db.transact(ctx, "write", db.writer, nil, f)
}

// Read runs f in one transaction of the read pool: every statement of f sees
// the same state, whatever is written meanwhile.
func (db *DB) Read(ctx context.Context, f func(*sql.Tx) error) error {
	reader, err := db.openReader()
	if err != nil {
		return &Error{Op: "read", Path: db.path, Err: classify(err)}
	}
	return db.transact(ctx, "read", reader, &sql.TxOptions{ReadOnly: true}, f)
}

func (db *DB) transact(ctx context.Context, op string, pool *sql.DB, opts *sql.TxOptions, f func(*sql.Tx) error) error {
	tx, err := pool.BeginTx(ctx, opts)
	if err != nil {
		return &Error{Op: op, Path: db.path, Err: classify(err)}
	}
	if err := f(tx); err != nil {
		// After a full disk SQLite may have rolled back already, and the
		// second rollback then errors; the first cause is the one that counts.
		_ = tx.Rollback()
		return db.wrap(op, err)
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return &Error{Op: op, Path: db.path, Err: classify(err)}
	}
	return nil
}

// wrap adds operation and file to an error of the driver and leaves the
// caller's own errors as they are.
func (db *DB) wrap(op string, err error) error {
	if c := classify(err); c != err {
		return &Error{Op: op, Path: db.path, Err: c}
	}
	return err
}

func (db *DB) openReader() (*sql.DB, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, sql.ErrConnDone
	}
	if db.reader == nil {
		reader, err := pool(db.path, readerParams())
		if err != nil {
			return nil, err
		}
		reader.SetMaxOpenConns(readers)
		db.reader = reader
	}
	return db.reader, nil
}

func (db *DB) left() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.closed
}

// Leave ends the use of the database in a process that is about to exit. It
// does not close: closing the last connection copies the write-ahead log into
// the file and syncs both (sqlite3_close, "checkpoint"), which would cost a
// short command more than its row did. Nothing is lost: committed transactions
// are durable in the log, and the next process to open the file reads them
// there. The descriptors go with the process.
func (db *DB) Leave() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
}

// Close waits for running transactions and closes both pools.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	var err error
	if db.reader != nil {
		err = db.reader.Close()
	}
	return errors.Join(err, db.writer.Close())
}
