package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "new" {
		t.Fatalf("content = %q, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, want 0600", info.Mode().Perm())
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left behind: %q", n)
	}
}

func TestWriteReplacesSymlinkItself(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	victim := filepath.Join(other, "victim")
	if err := os.WriteFile(victim, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "key")
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(victim); string(got) != "keep" {
		t.Fatalf("the link was followed: victim holds %q", got)
	}
}

func TestErrorsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x")); err == nil {
		t.Error("Write over a directory succeeded")
	}
	if err := Create(path, []byte("x")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a directory: %v, want ErrExist", err)
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left behind: %q", n)
	}
	if err := Write(filepath.Join(dir, "missing", "f"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write in a missing folder: %v, want ErrNotExist", err)
	}
}

func TestCreateHasOneWinner(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() { errs[i] = Create(path, bytes.Repeat(fmt.Appendf(nil, "%02d", i), 4096)) })
	}
	wg.Wait()
	winners := 0
	for i, err := range errs {
		switch {
		case err == nil:
			winners++
			got, _ := os.ReadFile(path)
			if !bytes.Equal(got, bytes.Repeat(fmt.Appendf(nil, "%02d", i), 4096)) {
				t.Errorf("the file is not the winner's")
			}
		case !errors.Is(err, fs.ErrExist):
			t.Errorf("loser got %v, want ErrExist", err)
		}
	}
	if winners != 1 {
		t.Errorf("%d callers created the file, want 1", winners)
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left behind: %q", n)
	}
}
