package wallspec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The real file system: the made-up one of the other tests must not be all that was ever tried.
func TestLocalHost(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COWORKER_HOME", filepath.Join(root, "own"))
	ws := filepath.Join(root, "we ird\n\xff")
	for _, dir := range []string{ws, filepath.Join(root, "own")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("loop", filepath.Join(root, "loop")), os.Symlink(ws, filepath.Join(root, "link")),
		syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600), os.WriteFile(filepath.Join(root, "big"), make([]byte, 100), 0o600)); err != nil {
		t.Fatal(err)
	}
	h, err := LocalHost()
	if err != nil {
		t.Fatal(err)
	}
	if h.Memory <= 0 || h.OpenFiles <= 0 {
		t.Fatalf("memory %d, open files %d", h.Memory, h.OpenFiles)
	}
	p := mustBuild(t, Request{Workspace: filepath.Join(root, "link"), Write: true}, h)
	var st syscall.Stat_t
	if err := syscall.Stat(ws, &st); err != nil {
		t.Fatal(err)
	}
	if tree := p.Spec.Trees[0]; tree.Path != ws || tree.Inode != st.Ino || tree.Device != uint64(st.Dev) || p.Spec.Identity.UID != os.Geteuid() {
		t.Fatalf("%+v %+v", tree, p.Spec.Identity)
	}
	if !strings.Contains(envOf(p)["PATH"], "/usr/bin") {
		t.Errorf("PATH %q", envOf(p)["PATH"])
	}
	wantError(t, Request{Workspace: filepath.Join(root, "loop")}, h, "loop")
	wantError(t, Request{Workspace: root, ReadPaths: []string{filepath.Join(root, "fifo")}}, h, "neither a folder")
	wantError(t, Request{Workspace: filepath.Join(root, "own")}, h, "does not exist yet")
	for _, f := range []string{"fifo", "big", "loop", "link"} {
		if _, _, err := readFile(filepath.Join(root, f), 10); err == nil {
			t.Errorf("%s was read", f)
		}
	}
}

// As root the session runs as the owner of the workspace; without root, as the caller.
func TestLocalIdentity(t *testing.T) {
	ws, uid, gid := t.TempDir(), os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = 12345, 12346
		if err := os.Chown(ws, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	h, err := LocalHost()
	if err != nil {
		t.Fatal(err)
	}
	id := mustBuild(t, Request{Workspace: ws}, h).Spec.Identity
	if id.UID != uid || id.GID != gid || uid == 12345 && (id.Name != "u12345" || id.Home != "/home/u12345") {
		t.Fatalf("%+v", id)
	}
}
