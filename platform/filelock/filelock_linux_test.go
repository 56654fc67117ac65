package filelock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, name), open(t, name)
	if !Try(first) {
		t.Fatal("a free lock was not taken")
	}
	if !Try(first) {
		t.Fatal("one's own lock was not taken again")
	}
	if Try(second) || Within(second, 5*time.Millisecond) {
		t.Fatal("a lock was taken twice")
	}
	first.Close()
	if !Within(second, time.Second) {
		t.Fatal("a lock whose holder is gone was not taken")
	}
}

// TestWaits: the lock comes free while somebody waits for it.
func TestWaits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, name), open(t, name)
	if !Try(first) {
		t.Fatal("a free lock was not taken")
	}
	got := make(chan bool)
	go func() { got <- Within(second, 10*time.Second) }()
	first.Close()
	if !<-got {
		t.Fatal("the lock was not taken when it came free")
	}
}
