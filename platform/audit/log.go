// Package audit keeps the record: one row per consequential event, redacted,
// in a Merkle log (RFC 6962) whose head is signed at every commit.
//
// Who can write to the database but does not hold the key cannot change, drop,
// reorder or cut rows without Verify and the next Append noticing. Who holds
// the account holds the key too; against them only a checkpoint kept elsewhere
// helps, and Verify takes those.
//
// Everything that acts outside the walls writes here; nothing behind the wall
// may import it. A caller whose Append fails must not act: ErrNotRecorded
// covers every cause. The package must not grow an update or a delete.
package audit

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"coworker/platform/redact"
	"coworker/platform/sqlite"
)

// ErrNotRecorded marks every failure of Append: no row of the call was stored.
// The cause is in the chain (sqlite.ErrFull, sqlite.ErrCorrupt, ErrTampered, …).
var ErrNotRecorded = errors.New("the event could not be recorded")

// ErrTampered matches every TamperError.
var ErrTampered = errors.New("the audit log was changed")

// TamperError says where the log stops being what was signed.
type TamperError struct {
	Row    int64 // first bad row; 0 if it is not about one
	Last   int64 // the bad row is one of Row to Last, if Last is set
	Reason string
}

func (e *TamperError) Error() string {
	switch {
	case e.Row == 0:
		return fmt.Sprintf("%v: %s", ErrTampered, e.Reason)
	case e.Last > e.Row:
		return fmt.Sprintf("%v: one of the rows %d to %d: %s", ErrTampered, e.Row, e.Last, e.Reason)
	}
	return fmt.Sprintf("%v: row %d: %s", ErrTampered, e.Row, e.Reason)
}

// Is makes errors.Is(err, ErrTampered) work.
func (e *TamperError) Is(target error) bool { return target == ErrTampered }

// Config is what a log needs besides its database.
type Config struct {
	KeyFile  string           // the signing key; made at first use, mode 0600
	Redactor *redact.Redactor // applied to every row before it is stored
	Now      func() time.Time // for checkpoints and for rows without a time
}

// KeyName is the usual name of Config.KeyFile, in the state folder.
const KeyName = "audit.key"

// keepEvery is the distance between checkpoints that stay: close enough to say
// where a log was changed, far enough not to be a second log.
const keepEvery = 1024

// Log is the audit log of one account. Several processes may append to one
// database at a time. Its methods may be called from several goroutines.
type Log struct {
	db       *sqlite.DB
	key      ed25519.PrivateKey
	now      func() time.Time
	redactor atomic.Pointer[redact.Redactor]

	// What the last transaction of this process left behind. If the stored
	// head still reads the same, nobody appended since and the edge holds.
	// Taken before the database's write lock.
	mu   sync.Mutex
	head string
	edge edge

	queueMu sync.Mutex
	queue   []*request // waiting for the next commit
}

// Open returns the log in db, whose migrations must include Schema1.
func Open(ctx context.Context, db *sqlite.DB, config Config) (*Log, error) {
	if config.Redactor == nil || config.Now == nil || config.KeyFile == "" {
		return nil, errors.New("audit log: Config needs KeyFile, Redactor and Now")
	}
	key, err := loadKey(ctx, db, config.KeyFile)
	if err != nil {
		return nil, err
	}
	l := &Log{db: db, key: key, now: config.Now}
	l.redactor.Store(config.Redactor)
	return l, nil
}

// SetRedactor changes what later rows are redacted with: a session that learns
// a secret must know it before it writes the next row.
func (l *Log) SetRedactor(r *redact.Redactor) { l.redactor.Store(r) }

// PublicKey is what a stranger needs to verify checkpoints and proofs.
func (l *Log) PublicKey() ed25519.PublicKey { return l.key.Public().(ed25519.PublicKey) }

// current returns the right edge of the stored tree. It refuses a tree that is
// not the one last signed: signing on top of it would launder the change.
func (l *Log) current(ctx context.Context, tx *sql.Tx) (edge, error) {
	note, last, err := stored(ctx, tx)
	if err != nil {
		return edge{}, err
	}
	if note != "" && note == l.head && last == l.edge.size {
		return l.edge.clone(), nil
	}
	c, err := l.checkHead(note, last)
	if err != nil {
		return edge{}, err
	}
	e, err := readEdge(nodes{ctx, tx}, c.Size)
	if err != nil {
		return edge{}, err
	}
	if e.root() != c.Root {
		return edge{}, &TamperError{Reason: "the tree does not have the root that was signed"}
	}
	return e, nil
}

// stored reads the signed head, empty if there is none, and the last row.
func stored(ctx context.Context, tx *sql.Tx) (note string, last int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT coalesce((SELECT note FROM audit_head WHERE id = 1), ''),
		coalesce((SELECT max(seq) FROM audit_row), 0)`).Scan(&note, &last)
	return note, last, err
}

// checkHead verifies the signed head against the number of rows. No head and
// no rows is an empty log.
func (l *Log) checkHead(note string, last int64) (Checkpoint, error) {
	if note == "" {
		if last != 0 {
			return Checkpoint{}, &TamperError{Row: 1, Last: last, Reason: "the signed head is missing"}
		}
		return Checkpoint{Root: edge{}.root()}, nil
	}
	c, err := ParseCheckpoint(note)
	if err != nil {
		return Checkpoint{}, &TamperError{Reason: "the signed head is damaged: " + err.Error()}
	}
	if c.Origin != origin(l.PublicKey()) {
		return Checkpoint{}, fmt.Errorf("%w: the log was signed by %s, this key is %s", ErrKey, c.Origin, origin(l.PublicKey()))
	}
	if err := c.Verify(l.PublicKey()); err != nil {
		return Checkpoint{}, &TamperError{Reason: "the signed head is damaged: " + err.Error()}
	}
	switch {
	case last < c.Size:
		return Checkpoint{}, &TamperError{Row: last + 1, Last: c.Size, Reason: "rows were removed from the end"}
	case last > c.Size:
		return Checkpoint{}, &TamperError{Row: c.Size + 1, Last: last, Reason: "rows were added without a signature"}
	}
	return c, nil
}

// Checkpoint signs the log as it is, keeps the checkpoint and returns it, for
// a place that this account cannot reach.
func (l *Log) Checkpoint(ctx context.Context) (Checkpoint, error) {
	l.mu.Lock() // before the write lock, as in Append
	defer l.mu.Unlock()
	var c Checkpoint
	err := l.db.Write(ctx, func(tx *sql.Tx) error {
		e, err := l.current(ctx, tx)
		if err != nil {
			return err
		}
		c = sign(l.key, e.size, e.root(), l.now())
		if e.size == 0 {
			return nil
		}
		return keepCheckpoint(ctx, tx, c.String(), e.size)
	})
	if err != nil {
		return Checkpoint{}, fmt.Errorf("audit checkpoint: %w", err)
	}
	return c, nil
}

// Checkpoints returns the kept checkpoints, oldest first.
func (l *Log) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	var out []Checkpoint
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		var err error
		out, err = storedCheckpoints(ctx, tx)
		return err
	})
	return out, err
}

func storedCheckpoints(ctx context.Context, tx *sql.Tx) ([]Checkpoint, error) {
	rows, err := tx.QueryContext(ctx, "SELECT size, note FROM audit_checkpoint ORDER BY size")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Checkpoint
	for rows.Next() {
		var size int64
		var note string
		if err := rows.Scan(&size, &note); err != nil {
			return nil, err
		}
		c, err := ParseCheckpoint(note)
		if err != nil || c.Size != size {
			return nil, &TamperError{Reason: fmt.Sprintf("the kept checkpoint of size %d is damaged", size)}
		}
		out = append(out, c)
	}
	return slices.Clip(out), rows.Err()
}
