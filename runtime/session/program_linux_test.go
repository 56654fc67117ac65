package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenProgram: what is executed is a sealed copy of exactly the bytes that this build expects.
func TestOpenProgram(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "coworker-cell")
	want := strings.Repeat("program\n", 100_000)
	if err := os.WriteFile(path, []byte(want), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(want))
	digest := hex.EncodeToString(sum[:])
	f, err := openProgram(path, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(want)+1)
	if n, err := f.ReadAt(got, 0); n != len(want) || string(got[:n]) != want {
		t.Errorf("the copy has %d bytes (%v)", n, err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the copy can be changed")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("the copy can be cut")
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, digest string }{
		"other bytes": {path, strings.Repeat("0", 64)},
		"no digest":   {path, ""},
		"missing":     {path + ".x", digest},
		"a folder":    {dir, digest},
		"empty":       {empty, digest},
	} {
		var refused *ProgramError
		if f, err := openProgram(c.path, c.digest); !errors.As(err, &refused) || f != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
