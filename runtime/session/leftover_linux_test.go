package session

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// leftoverVar makes the test binary a supervisor that makes a folder and is killed.
const leftoverVar = "COWORKER_TEST_LEFTOVER"

func TestMain(m *testing.M) {
	parent := os.Getenv(leftoverVar)
	if parent == "" {
		os.Exit(m.Run())
	}
	o, err := newOwnFolder(parent, "killed")
	if err == nil {
		err = os.WriteFile(filepath.Join(o.path, "canary"), []byte("x"), 0o600)
	}
	fmt.Println("made", err)
	select {}
}

func TestOwnFolderCleansAfterTheKilled(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "probe")
	live, err := newOwnFolder(parent, "live")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{leftoverVar + "=" + parent}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "made <nil>\n" {
		t.Fatalf("%q %v", line, err)
	}
	second, err := newOwnFolder(parent, "second")
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, parent); got != "[killed live second]" {
		t.Errorf("with three alive: %s", got)
	}
	cmd.Process.Kill()
	cmd.Wait() // "signal: killed"
	if err := os.Symlink("/etc", filepath.Join(live.path, "link")); err != nil {
		t.Fatal(err)
	}
	third, err := newOwnFolder(parent, "third")
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, parent); got != "[live second third]" {
		t.Errorf("after the kill: %s", got)
	}
	for _, o := range []*ownFolder{live, second, third} {
		if err := o.remove(); err != nil {
			t.Error(err)
		}
	}
	if got := names(t, parent); got != "[]" {
		t.Errorf("at the end: %s", got)
	}
}

func TestOwnFolderAtOnce(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "probe")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			o, err := newOwnFolder(parent, fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(o.path); err != nil {
				t.Errorf("another one removed it: %v", err)
			}
			if err := o.remove(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := names(t, parent); got != "[]" {
		t.Errorf("at the end: %s", got)
	}
}

func TestOwnFolderRefusesALink(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "probe")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.Symlink(other, filepath.Join(parent, "planted")); err != nil {
		t.Fatal(err)
	}
	if _, err := newOwnFolder(parent, "mine"); err == nil {
		t.Error("a planted link was passed over")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("the target of a planted link is gone")
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return fmt.Sprint(out)
}
