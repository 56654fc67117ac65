package audit

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// request is one call of Append that waits for its commit. The results are
// written and read under Log.mu.
type request struct {
	bodies      [][]byte
	attestation []byte // stored in the same commit, if set
	id          string // of the attestation

	done  bool
	first int64
	err   error
}

// Append stores the rows in one commit and returns the sequence number of the
// first; the others follow without a gap. When it returns nil they are on
// stable storage. Calls of several goroutines that meet share a commit.
func (l *Log) Append(ctx context.Context, rows ...Row) (first int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	first, err = l.submit(ctx, &request{}, rows)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	return first, nil
}

// AppendAttested is PutAttestation and Append in one commit. Rows without an
// attestation id get the one of data, which is returned.
func (l *Log) AppendAttested(ctx context.Context, data []byte, rows ...Row) (first int64, id string, err error) {
	if id, err = attestationID(data); err != nil {
		return 0, "", fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	named := make([]Row, len(rows))
	for i, row := range rows {
		if row.Attestation == "" {
			row.Attestation = id
		}
		named[i] = row
	}
	first, err = l.submit(ctx, &request{attestation: data, id: id}, named)
	if err != nil {
		return 0, "", fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	return first, id, nil
}

// submit encodes the rows, outside of every lock, and waits until they are
// committed by this goroutine or by one that was faster.
func (l *Log) submit(ctx context.Context, r *request, rows []Row) (first int64, err error) {
	now := l.now()
	redactor := l.redactor.Load()
	r.bodies = make([][]byte, len(rows))
	for i, row := range rows {
		if row.Time.IsZero() {
			row.Time = now
		}
		if r.bodies[i], err = encodeBody(redactor, row); err != nil {
			return 0, err
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.queueMu.Lock()
	l.queue = append(l.queue, r)
	l.queueMu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.done {
		l.queueMu.Lock()
		group := l.queue
		l.queue = nil
		l.queueMu.Unlock()
		// The rows of others are in the group: this caller's change of mind
		// must not undo them. The lock is waited for up to the busy timeout.
		l.commit(context.WithoutCancel(ctx), group, now)
	}
	return r.first, r.err
}

// commit stores a group in one transaction: all of it or nothing.
func (l *Log) commit(ctx context.Context, group []*request, now time.Time) {
	var head string
	var e edge
	err := l.db.Write(ctx, func(tx *sql.Tx) (err error) {
		if e, err = l.current(ctx, tx); err != nil {
			return err
		}
		before := e.size
		for _, r := range group {
			r.first = e.size + 1
			if err := store(ctx, tx, &e, r); err != nil {
				return err
			}
		}
		if e.size == before {
			return nil // attestations only
		}
		head = sign(l.key, e.size, e.root(), now).String()
		return putHead(ctx, tx, head, e.size, before)
	})
	l.head, l.edge = head, e
	for _, r := range group {
		r.done, r.err = true, err
	}
	if err != nil {
		l.head = "" // what is stored is not known: read it again
	}
}

// store writes one request and moves the edge.
func store(ctx context.Context, tx *sql.Tx, e *edge, r *request) error {
	if r.attestation != nil {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO audit_attestation (id, json) VALUES (?, ?)", r.id, string(r.attestation)); err != nil {
			return err
		}
	}
	return insert(ctx, tx, e, r.bodies)
}

func insert(ctx context.Context, tx *sql.Tx, e *edge, bodies [][]byte) error {
	stmt, err := tx.PrepareContext(ctx, "INSERT INTO audit_row (seq, hashes, record) VALUES (?, ?, ?)")
	if err != nil {
		return err
	}
	defer stmt.Close()
	for _, body := range bodies {
		seq := e.size + 1
		record := seal(seq, body)
		hashes := e.add(tlog.RecordHash(record), nil)
		result, err := stmt.ExecContext(ctx, seq, hashes, string(record))
		if err != nil {
			return err
		}
		// A trigger can swallow an insert without an error.
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return &TamperError{Row: seq, Reason: "the database did not take the row"}
		}
	}
	return nil
}

// putHead stores the new head, and keeps it for good when the commit crossed a
// multiple of keepEvery.
func putHead(ctx context.Context, tx *sql.Tx, note string, size, before int64) error {
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO audit_head (id, note) VALUES (1, ?)", note); err != nil {
		return err
	}
	if size/keepEvery == before/keepEvery {
		return nil
	}
	return keepCheckpoint(ctx, tx, note, size)
}

func keepCheckpoint(ctx context.Context, tx *sql.Tx, note string, size int64) error {
	_, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO audit_checkpoint (size, note) VALUES (?, ?)", size, note)
	return err
}
