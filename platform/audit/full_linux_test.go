package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"coworker/platform/sqlite"
)

// A full disk is a typed error, the log stays whole, and it goes on when there
// is space again. The child mounts a 1 MiB tmpfs in a mount namespace of its
// own: as root directly, as anyone else in a user namespace.
func TestFullDisk(t *testing.T) {
	c := startChild(t, "full", t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func fillDisk(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), Schema1)
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := Open(ctx, db, config(dir))
	if err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 300<<10), 0o600); err != nil {
		return err
	}
	var stored int64
	for {
		first, err := l.Append(ctx, Row{Preview: strings.Repeat("x", 2000)}, Row{Preview: "second"})
		if err != nil {
			if !errors.Is(err, ErrNotRecorded) || !errors.Is(err, sqlite.ErrFull) {
				return fmt.Errorf("full disk gave %w, want ErrNotRecorded and ErrFull", err)
			}
			break
		}
		stored = first + 1
	}
	if err := whileFull(ctx, dir); err != nil {
		return err
	}
	if err := expectRows(ctx, l, stored); err != nil {
		return fmt.Errorf("while full: %w", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	if _, err := l.Append(ctx, Row{Stage: "after"}); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	return expectRows(ctx, l, stored+1)
}

func expectRows(ctx context.Context, l *Log, want int64) error {
	v, err := l.Verify(ctx)
	if err != nil || v.Rows != want {
		return fmt.Errorf("verify: %d rows, want %d: %w", v.Rows, want, err)
	}
	return nil
}

// whileFull starts a second log in a new folder on the full disk: nothing can
// be made, and the error says why.
func whileFull(ctx context.Context, dir string) error {
	// Leave no page free, or the small new files fit.
	f, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	db, err := sqlite.Open(ctx, filepath.Join(dir, "other.db"), Schema1)
	if err == nil {
		return errors.Join(errors.New("a database was made on a full disk"), db.Close())
	}
	if !errors.Is(err, sqlite.ErrFull) {
		return fmt.Errorf("open on a full disk gave %w, want ErrFull", err)
	}
	return nil
}
