package fsuser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestRun shows that root's power is gone inside and back outside. It needs root; an ordinary user can be only itself.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if err := Run(os.Geteuid()+1, 1, func() error { return nil }); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("became somebody else: %v", err)
		}
		return
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 4243, 4244); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = Run(4243, 4244, func() error {
		if _, err := os.ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("read root's file: %v", err)
		}
		return os.WriteFile(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), "new"), nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(own, "new"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 4243 || info.Sys().(*syscall.Stat_t).Gid != 4244 {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("the rights did not come back: %v", err)
	}
}
