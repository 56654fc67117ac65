package audit

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Verified is what held.
type Verified struct {
	Rows        int64
	Root        tlog.Hash
	Checkpoints int // checked against the rows, the head and the given ones included
}

// Verify recomputes the tree from the rows and compares it with the stored
// nodes, the signed head, the kept checkpoints and the given ones. It detects
// rows that were edited, removed, moved or cut off, and returns a TamperError
// that names the first bad row.
func (l *Log) Verify(ctx context.Context, external ...Checkpoint) (Verified, error) {
	var v Verified
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		if err := checkSchema(ctx, tx); err != nil {
			return err
		}
		marks, last, err := l.marks(ctx, tx, external)
		if err != nil {
			return err
		}
		s := scanner{marks: marks, last: last}
		if err := s.scan(ctx, tx); err != nil {
			return err
		}
		v = Verified{Rows: s.edge.size, Root: s.edge.root(), Checkpoints: len(marks)}
		return nil
	})
	return v, err
}

// marks returns the checkpoints to hold the rows against, by size, and the
// last row there is. Those of size 0 hold for every log.
func (l *Log) marks(ctx context.Context, tx *sql.Tx, external []Checkpoint) ([]Checkpoint, int64, error) {
	for i, c := range external {
		if err := c.Verify(l.PublicKey()); err != nil {
			return nil, 0, &TamperError{Reason: fmt.Sprintf("given checkpoint %d: %v; the key or the log was replaced, or it belongs to another log", i+1, err)}
		}
	}
	kept, err := storedCheckpoints(ctx, tx)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range kept {
		if err := c.Verify(l.PublicKey()); err != nil {
			return nil, 0, &TamperError{Reason: fmt.Sprintf("kept checkpoint of size %d: %v", c.Size, err)}
		}
	}
	note, last, err := stored(ctx, tx)
	if err != nil {
		return nil, 0, err
	}
	marks := slices.Concat(kept, external)
	// A bad head is reported after the rows: they may say more.
	head, headErr := l.checkHead(note, last)
	if headErr == nil && note != "" {
		marks = append(marks, head)
	}
	slices.SortStableFunc(marks, func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	if headErr != nil {
		s := scanner{marks: marks, last: last}
		if err := s.scan(ctx, tx); err != nil {
			return nil, 0, err
		}
	}
	return marks, last, headErr
}

// scanner walks the rows in order.
type scanner struct {
	edge  edge
	marks []Checkpoint // not yet passed
	last  int64        // the last row there is
	good  int64        // rows that a checkpoint vouches for
	nodes []byte       // reused
}

func (s *scanner) scan(ctx context.Context, tx *sql.Tx) error {
	if err := s.pass(); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, "SELECT seq, hashes, record FROM audit_row ORDER BY seq")
	if err != nil {
		return err
	}
	defer rows.Close()
	var hashes, record sql.RawBytes
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq, &hashes, &record); err != nil {
			return err
		}
		if err := s.row(seq, hashes, record); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(s.marks) > 0 {
		return &TamperError{Row: s.edge.size + 1, Last: s.marks[0].Size,
			Reason: fmt.Sprintf("the log ends at row %d, but a checkpoint was signed for %d rows", s.edge.size, s.marks[0].Size)}
	}
	return nil
}

// row checks one row against its place, its stored nodes and the checkpoints
// that end with it.
func (s *scanner) row(seq int64, hashes, record []byte) error {
	want := s.edge.size + 1
	if seq != want {
		return &TamperError{Row: want, Reason: fmt.Sprintf("it is missing, row %d comes next", seq)}
	}
	if !bytes.HasPrefix(record, []byte(prefix(seq))) {
		return &TamperError{Row: seq, Reason: "its record was written for another place"}
	}
	s.nodes = s.edge.add(tlog.RecordHash(record), s.nodes[:0])
	if !bytes.Equal(s.nodes, hashes) {
		if len(hashes) >= tlog.HashSize && bytes.Equal(s.nodes[:tlog.HashSize], hashes[:tlog.HashSize]) {
			return &TamperError{Row: seq, Reason: "its tree nodes do not match the rows before it"}
		}
		return &TamperError{Row: seq, Reason: "its content does not match its hash"}
	}
	return s.pass()
}

// pass compares the tree with the checkpoints of its size.
func (s *scanner) pass() error {
	for len(s.marks) > 0 && s.marks[0].Size == s.edge.size {
		if s.edge.root() != s.marks[0].Root {
			return &TamperError{Row: s.good + 1, Last: s.edge.size,
				Reason: fmt.Sprintf("the rows do not have the root that was signed on %s", s.marks[0].Time.Format(timeLayout))}
		}
		s.good = s.edge.size
		s.marks = s.marks[1:]
	}
	return nil
}
