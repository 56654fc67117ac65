package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// readUntil reads from a terminal's other end up to a text, and returns everything read.
func readUntil(t *testing.T, master *os.File, text string) string {
	t.Helper()
	var got strings.Builder
	for buf := make([]byte, 256); !strings.Contains(got.String(), text); {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(buf[:n])
	}
	return got.String()
}

// TestSecretIsNotEchoed types a value at the prompt, and later a word to see that the echo is back.
func TestSecretIsNotEchoed(t *testing.T) {
	for name, c := range map[string]struct {
		typed string
		code  int
	}{"enter": {planted + "\r", 0}, "control-c": {planted + "\x03", exitConfiguration}, "nothing": {"\r", exitConfiguration}} {
		h := newSecretsHome(t)
		master, terminal, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		done := make(chan error)
		go func() {
			done <- Run(context.Background(), []string{"coworker", "secrets", "set", "one", "--host", "a.example.com"}, Streams{In: terminal, Out: &out, Err: terminal})
		}()
		seen := readUntil(t, master, "value (not shown): ")
		if _, err := master.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		if code := ExitCode(<-done); code != c.code {
			t.Errorf("%s: exit code %d", name, code)
		}
		if _, err := master.WriteString("echoed\n"); err != nil {
			t.Fatal(err)
		}
		seen += readUntil(t, master, "echoed")
		if strings.Contains(seen+out.String(), planted) || len(h.leaks()) > 0 {
			t.Errorf("%s: the value is shown: %q", name, seen)
		}
		if err := terminal.Close(); err != nil {
			t.Error(err)
		}
		if err := master.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGitThatHangs: a helper that never answers is given up on.
func TestGitThatHangs(t *testing.T) {
	h := newSecretsHome(t)
	fifo := filepath.Join(h.home, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h.file(".gitconfig", "[credential]\n\thelper = \"!f() { read x < ~/fifo; }; f\"\n")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	e := newEnvironment(Streams{Out: io.Discard, Err: io.Discard})
	if file, err := e.gitFill(ctx, "git.example.com"); err != nil || len(file.result.Found) > 0 {
		t.Errorf("%+v, %v", file, err)
	}
	release, err := os.OpenFile(fifo, os.O_RDWR, 0) // the helper's read ends when this end is closed
	if err != nil {
		t.Fatal(err)
	}
	if err := release.Close(); err != nil {
		t.Error(err)
	}
}
