package selfconfine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	lockcall "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// TestMain is the confined process too: this one must stay free.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SELFCONFINE_TEST"); dir != "" {
		fmt.Print(strings.Join(confined(dir), "\n"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// confined tries what must fail after Apply, and lists what did not go as it must.
func confined(dir string) []string {
	var out []string
	open := filepath.Join(dir, "open")
	if err := Apply(Need{Read: []string{open, filepath.Join(dir, "not there")}, DataBytes: 1 << 30, GoBytes: 64 << 20, Descriptor: 64}); err != nil {
		return []string{err.Error()}
	}
	check := func(what string, ok bool, err error) {
		if !ok {
			out = append(out, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if b, err := os.ReadFile(filepath.Join(open, "file")); string(b) != "hello" {
		check("read what is needed", false, err)
	}
	var limit syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	check("descriptors", limit.Max == 64, fmt.Errorf("%d", limit.Max))
	abi, err := lockcall.LandlockGetABIVersion()
	if err != nil || abi < filesABI {
		return out // the limits are all there is
	}
	_, err = os.ReadFile(filepath.Join(dir, "shut"))
	check("read another file", errors.Is(err, fs.ErrPermission), err)
	check("write", errors.Is(os.WriteFile(filepath.Join(open, "new"), nil, 0o600), fs.ErrPermission), nil)
	check("remove", os.Remove(filepath.Join(open, "file")) != nil, nil)
	err = exec.Command("/bin/true").Run()
	check("start a program", errors.Is(err, fs.ErrPermission), err)
	if abi >= truncateABI {
		err = os.Truncate(filepath.Join(open, "file"), 0)
		check("cut off", errors.Is(err, fs.ErrPermission), err)
	}
	if abi < tcpABI {
		return out
	}
	plain := net.ListenConfig{}
	plain.SetMultipathTCP(false) // Landlock does not judge MPTCP
	_, err = plain.Listen(context.Background(), "tcp4", "127.0.0.1:1")
	check("bind", errors.Is(err, fs.ErrPermission), err)
	return out
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"open/file", "shut"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hello"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "SELFCONFINE_TEST="+dir)
	out, err := c.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
