package audit

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ErrNoRow says that the log has no such row.
var ErrNoRow = errors.New("no such row in the audit log")

// Filter selects rows. Empty fields do not restrict.
type Filter struct {
	Session, Parent, Actor, Workspace, Connector, Tool, Stage, Status, CallID string

	Since, Until time.Time // Since is included, Until is not
	After        int64     // only rows with a larger sequence number
	Before       int64     // only rows with a smaller one
	Oldest       bool      // oldest first; otherwise newest first
	Limit        int       // at most this many; 0 means 100
}

const (
	defaultLimit = 100
	maxLimit     = 10_000
)

// query returns the SQL of a filter. Column names come from this file only.
func (f Filter) query() (text string, args []any) {
	where := []string{"1"}
	add := func(condition string, arg any) {
		where = append(where, condition)
		args = append(args, arg)
	}
	for _, c := range []struct{ column, value string }{
		{"session", f.Session}, {"parent", f.Parent}, {"actor", f.Actor}, {"workspace", f.Workspace}, {"connector", f.Connector},
		{"tool", f.Tool}, {"stage", f.Stage}, {"status", f.Status}, {"call_id", f.CallID},
	} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if !f.Since.IsZero() {
		add("time >= ?", f.Since.UTC().Format(timeLayout))
	}
	if !f.Until.IsZero() {
		add("time < ?", f.Until.UTC().Format(timeLayout))
	}
	if f.After > 0 {
		add("seq > ?", f.After)
	}
	if f.Before > 0 {
		add("seq < ?", f.Before)
	}
	order := "DESC"
	if f.Oldest {
		order = "ASC"
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	return fmt.Sprintf("SELECT seq, record FROM audit_row WHERE %s ORDER BY seq %s LIMIT %d",
		strings.Join(where, " AND "), order, min(limit, maxLimit)), args
}

// List returns the rows that match.
func (l *Log) List(ctx context.Context, f Filter) ([]Row, error) {
	var out []Row
	text, args := f.query()
	err := l.each(ctx, text, args, func(seq int64, record string) error {
		row, err := decodeAt(seq, record)
		if err != nil {
			return err
		}
		out = append(out, row)
		return nil
	})
	return out, err
}

// Get returns one row, or ErrNoRow.
func (l *Log) Get(ctx context.Context, seq int64) (Row, error) {
	var row Row
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		record, err := readRecord(ctx, tx, seq)
		if err != nil {
			return err
		}
		row, err = decodeAt(seq, record)
		return err
	})
	return row, err
}

// decodeAt decodes the record that stands at seq.
func decodeAt(seq int64, record string) (Row, error) {
	row, err := decodeRow([]byte(record))
	if err != nil {
		return Row{}, &TamperError{Row: seq, Reason: "it cannot be read: " + err.Error()}
	}
	if row.Seq != seq {
		return Row{}, &TamperError{Row: seq, Reason: fmt.Sprintf("its record was written for row %d", row.Seq)}
	}
	return row, nil
}

func readRecord(ctx context.Context, tx *sql.Tx, seq int64) (record string, err error) {
	err = tx.QueryRowContext(ctx, "SELECT record FROM audit_row WHERE seq = ?", seq).Scan(&record)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%w: %d", ErrNoRow, seq)
	}
	return record, err
}

// Export writes every row as one line of JSON, byte by byte as it was hashed,
// and as the last line the signed head:
//
//	{"checkpoint":"coworker audit log v1\n…"}
//
// The leaf hash of a row is SHA-256 of a zero byte and its line, so the export
// can be verified without this program.
func (l *Log) Export(ctx context.Context, w io.Writer) error {
	buffered := bufio.NewWriterSize(w, 64<<10)
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		if err := eachIn(ctx, tx, "SELECT seq, record FROM audit_row ORDER BY seq", nil, func(_ int64, record string) error {
			_, err := buffered.WriteString(record + "\n")
			return err
		}); err != nil {
			return err
		}
		note, _, err := stored(ctx, tx)
		if err != nil || note == "" {
			return err
		}
		line, err := marshal(map[string]string{"checkpoint": note})
		if err != nil {
			return err
		}
		_, err = buffered.Write(append(line, '\n'))
		return err
	})
	return errors.Join(err, buffered.Flush())
}

func (l *Log) each(ctx context.Context, query string, args []any, f func(seq int64, record string) error) error {
	return l.db.Read(ctx, func(tx *sql.Tx) error { return eachIn(ctx, tx, query, args, f) })
}

func eachIn(ctx context.Context, tx *sql.Tx, query string, args []any, f func(seq int64, record string) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var record string
		if err := rows.Scan(&seq, &record); err != nil {
			return err
		}
		if err := f(seq, record); err != nil {
			return err
		}
	}
	return rows.Err()
}
