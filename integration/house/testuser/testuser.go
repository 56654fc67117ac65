//go:build linux

// Package testuser runs commands as the unprivileged user of the test suite, so that one run as root covers both
// kinds of user. Only tests below integration import it; it must not learn about cells or walls.
//
// As root the user is coworker-test (made by scripts/test-user) or, where nobody made it, uid 4243 without a name:
// the kernel needs no entry in /etc/passwd. Without root there is one user, the one who runs the tests.
package testuser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

const (
	name       = "coworker-test"
	fallbackID = 4243
)

// User is somebody to run a command as.
type User struct {
	Name string // "root", or the name of the unprivileged user ("" when it has none)
	UID  int
	GID  int
}

// All is root and the unprivileged user, or without root only the one who runs the tests. Tests range over it: a
// missing user is then no skipped test.
func All(t testing.TB) []User {
	t.Helper()
	if os.Geteuid() != 0 {
		return []User{self()}
	}
	return []User{{Name: "root"}, Unprivileged(t)}
}

// Unprivileged is never root.
func Unprivileged(t testing.TB) User {
	t.Helper()
	if os.Geteuid() != 0 {
		return self()
	}
	entry, err := user.Lookup(name)
	if err != nil {
		return User{UID: fallbackID, GID: fallbackID}
	}
	uid, err := strconv.Atoi(entry.Uid)
	if err != nil || uid == 0 {
		t.Fatalf("user %s has uid %q, want a number that is not 0", name, entry.Uid)
	}
	gid, err := strconv.Atoi(entry.Gid)
	if err != nil || gid == 0 {
		t.Fatalf("user %s has gid %q, want a number that is not 0", name, entry.Gid)
	}
	return User{Name: name, UID: uid, GID: gid}
}

func self() User {
	u := User{UID: os.Geteuid(), GID: os.Getegid()}
	if entry, err := user.Current(); err == nil {
		u.Name = entry.Username
	}
	return u
}

// String names a subtest.
func (u User) String() string {
	if u.Name != "" {
		return u.Name
	}
	return "uid" + strconv.Itoa(u.UID)
}

// Root says whether commands run with uid 0.
func (u User) Root() bool { return u.UID == 0 }

// Command prepares a command as u: its ids, no supplementary groups, and an environment that holds nothing of the
// caller's but PATH and TMPDIR. home becomes HOME and the working directory.
func (u User) Command(ctx context.Context, home, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "USER=" + u.String(), "LOGNAME=" + u.String()}
	if tmp := os.Getenv("TMPDIR"); tmp != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	}
	if u.UID != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: []uint32{}},
		}
	}
	return cmd
}

// Dir makes a folder of mode 0700 that belongs to u and that u can get to. t.TempDir does not do: its parent is
// closed to other users.
func (u User) Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "coworker-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	if err := u.Own(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Own gives everything below dir to u, following no link.
func (u User) Own(dir string) error {
	if u.UID == os.Geteuid() {
		return nil
	}
	return filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, u.UID, u.GID)
	})
}

// Install copies programs into a folder that every user can execute from and returns it: a clone below /root or
// another home is closed to the unprivileged user.
func Install(t testing.TB, programs ...string) string {
	t.Helper()
	dir := User{UID: os.Geteuid()}.Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range programs {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatalf("%v (make build comes first)", err)
		}
		to := filepath.Join(dir, filepath.Base(from))
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(fmt.Errorf("install %s: %w", from, err))
		}
		if err := os.Chmod(to, 0o755); err != nil { // the umask may have taken bits away
			t.Fatal(err)
		}
	}
	return dir
}
