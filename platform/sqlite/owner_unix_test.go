//go:build unix

package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOpenRefusesSharedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(context.Background(), path, testSchema...)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), path, testSchema...); !errors.Is(err, ErrUnsafe) {
		t.Errorf("error = %v, want ErrUnsafe", err)
	}
}

func TestForeignOwnerIsRefused(t *testing.T) {
	// Root gives a file away; anyone else meets one of root's.
	path := "/etc/passwd"
	if os.Geteuid() == 0 {
		path = filepath.Join(t.TempDir(), "f")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(info); !errors.Is(err, ErrUnsafe) {
		t.Errorf("error = %v, want ErrUnsafe", err)
	}
}
