package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"coworker/platform/atomicfile"
	"coworker/platform/sqlite"
)

// ErrKey says that the log cannot be signed: its key is missing, unreadable or
// not the one that signed it so far.
var ErrKey = errors.New("the key of the audit log is missing or is another one")

const keyTitle = "coworker audit key v1\n"

// loadKey reads the signing key. A log without rows gets a new one; a log with
// rows and no key is an error, because a fresh key would disown its past.
func loadKey(ctx context.Context, db *sqlite.DB, path string) (ed25519.PrivateKey, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	used := false
	err = db.Write(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM audit_row) OR EXISTS (SELECT 1 FROM audit_head)").Scan(&used)
	})
	if err != nil {
		return nil, err
	}
	if used {
		// Unless another process made both since the first look.
		key, err := readKey(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s does not exist, but the log has rows", ErrKey, path)
		}
		return key, err
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, err
	}
	text := keyTitle + base64.StdEncoding.EncodeToString(seed) + "\n"
	if err := atomicfile.Create(path, []byte(text)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	return readKey(path) // the winner's, if several processes made one
}

func readKey(path string) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	if err := checkKeyFile(info); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKey, path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	text, ok := strings.CutPrefix(string(data), keyTitle)
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "\n"))
	if !ok || err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%w: %s does not hold one", ErrKey, path)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
