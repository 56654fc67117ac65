//go:build unix

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLoad(t *testing.T) {
	tests := []struct {
		name    string
		make    func(t *testing.T, file string) error
		wantErr string
	}{
		{"missing", func(*testing.T, string) error { return nil }, ""},
		{"good", func(_ *testing.T, f string) error { return os.WriteFile(f, []byte(`level="partial"`), 0o600) }, ""},
		{"group writable", func(_ *testing.T, f string) error {
			return errors.Join(os.WriteFile(f, nil, 0o600), os.Chmod(f, 0o620))
		}, "mode 0620 lets others write"},
		{"symlink", func(t *testing.T, f string) error {
			other := filepath.Join(t.TempDir(), "o")
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Symlink(other, f))
		}, "symbolic link"},
		{"hard link", func(_ *testing.T, f string) error {
			return errors.Join(os.WriteFile(f, nil, 0o600), os.Link(f, f+"2"))
		}, "2 names"},
		{"folder", func(_ *testing.T, f string) error { return os.Mkdir(f, 0o700) }, "not a regular file"},
		{"large", func(_ *testing.T, f string) error { return os.WriteFile(f, make([]byte, MaxBytes+1), 0o600) }, "more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := tt.make(t, file); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Fatalf("error = %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// owned is a file that belongs to somebody else, without the need of root to make one.
type owned struct {
	fs.FileInfo
	uid uint32
}

func (o owned) Sys() any { return &syscall.Stat_t{Uid: o.uid, Nlink: 1} }

func TestOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(file, owned{info, 12345}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "uid 12345") {
		t.Errorf("error = %v, want ErrUnsafe naming uid 12345", err)
	}
	for _, uid := range []uint32{0, uint32(os.Geteuid())} {
		if err := checkOwner(file, owned{info, uid}); err != nil {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
}
