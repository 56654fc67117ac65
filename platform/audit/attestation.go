package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNoAttestation says that no record has this id.
var ErrNoAttestation = errors.New("no such attestation")

const maxAttestation = 1 << 20

// PutAttestation stores what the probes of a session found, once however often
// the same was found, and returns its id: the SHA-256 of the JSON. A row names
// the id, so the tree covers the attestation too. It is not redacted: probes
// report names and error numbers, and the id must match what they signed.
func (l *Log) PutAttestation(ctx context.Context, data []byte) (id string, err error) {
	_, id, err = l.AppendAttested(ctx, data)
	return id, err
}

func attestationID(data []byte) (string, error) {
	if len(data) > maxAttestation || !json.Valid(data) {
		return "", fmt.Errorf("attestation: %d bytes are not JSON of at most %d bytes", len(data), maxAttestation)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// Attestation returns the JSON with this id, or ErrNoAttestation.
func (l *Log) Attestation(ctx context.Context, id string) ([]byte, error) {
	var text string
	err := l.db.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT json FROM audit_attestation WHERE id = ?", id).Scan(&text)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", ErrNoAttestation, cut(id, 80))
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != id {
		return nil, &TamperError{Reason: "attestation " + id + " does not match its id"}
	}
	return []byte(text), nil
}
