package audit

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows a stranger that one row is in the log, without the other rows.
type Proof struct {
	Record     string      `json:"record"` // the row, byte by byte as it was hashed
	Leaf       tlog.Hash   `json:"leaf"`
	Path       []tlog.Hash `json:"path"`       // RFC 6962 inclusion path
	Checkpoint string      `json:"checkpoint"` // signed text
}

// ErrProof marks a proof that proves nothing.
var ErrProof = errors.New("the proof does not hold")

// maxPath is the height of the tallest tree that sizes of 63 bits allow.
const maxPath = 63

// Prove returns the proof of one row against the current head.
func (l *Log) Prove(ctx context.Context, seq int64) (Proof, error) {
	var p Proof
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		note, last, err := stored(ctx, tx)
		if err != nil {
			return err
		}
		head, err := l.checkHead(note, last)
		if err != nil {
			return err
		}
		if p.Record, err = readRecord(ctx, tx, seq); err != nil {
			return err
		}
		path, err := tlog.ProveRecord(head.Size, seq-1, nodes{ctx, tx})
		if err != nil {
			return err
		}
		p.Leaf, p.Path, p.Checkpoint = tlog.RecordHash([]byte(p.Record)), path, note
		return nil
	})
	if err != nil {
		return Proof{}, err
	}
	if _, _, err := VerifyProof(p, l.PublicKey()); err != nil {
		return Proof{}, &TamperError{Row: seq, Reason: "it cannot be proved: " + err.Error()}
	}
	return p, nil
}

// VerifyProof checks a proof with nothing but the public key of the log, and
// returns the row that it proves and the checkpoint that it rests on.
func VerifyProof(p Proof, pub ed25519.PublicKey) (Row, Checkpoint, error) {
	fail := func(err error) (Row, Checkpoint, error) {
		return Row{}, Checkpoint{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	c, err := ParseCheckpoint(p.Checkpoint)
	if err != nil {
		return fail(err)
	}
	if err := c.Verify(pub); err != nil {
		return fail(err)
	}
	row, err := decodeRow([]byte(p.Record))
	if err != nil {
		return fail(err)
	}
	switch {
	case row.Seq > c.Size:
		return fail(fmt.Errorf("row %d is beyond the %d rows of the checkpoint", row.Seq, c.Size))
	case row.Leaf != p.Leaf:
		return fail(errors.New("the leaf is not the hash of the record"))
	case len(p.Path) > maxPath:
		return fail(fmt.Errorf("the path has %d steps", len(p.Path)))
	}
	// CheckRecord recomputes the root from leaf and path for this position.
	if err := tlog.CheckRecord(p.Path, c.Size, c.Root, row.Seq-1, row.Leaf); err != nil {
		return fail(err)
	}
	return row, c, nil
}

// ParseProof reads the JSON of a proof that came from anywhere.
func ParseProof(data []byte) (Proof, error) {
	// A record is escaped once more inside the JSON of its proof.
	if len(data) > 2*maxRecord {
		return Proof{}, fmt.Errorf("%w: %d bytes are too many", ErrProof, len(data))
	}
	var p Proof
	if err := json.Unmarshal(data, &p); err != nil {
		return Proof{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	return p, nil
}
