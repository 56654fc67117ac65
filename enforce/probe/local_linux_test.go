package probe

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// TestLongSocketPath reaches a socket whose path no address can hold.
func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	must(t, os.MkdirAll(dir, 0o755))
	short := filepath.Join(t.TempDir(), "d")
	must(t, os.Symlink(dir, short))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short + "/s"})
	must(t, err)
	defer l.Close()
	b := battery{Setup: Setup{Backend: enforce.Native}}
	if r := b.pathSocket(filepath.Join(dir, "s")); r.got != enforce.Leaked {
		t.Errorf("a socket within reach: %v, want leaked", r)
	}
	if r := b.pathSocket(filepath.Join(dir, "absent")); r.got != enforce.Stopped || !strings.Contains(r.detail, unix.ErrnoName(unix.ENOENT)) {
		t.Errorf("an absent socket: %v, want stopped by ENOENT", r)
	}
}
