package seccomp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCommittedFiltersAreCurrent generates the filters again and compares every byte. It needs cgo, a C compiler and
// libseccomp-dev of Debian 12; their absence is a failure.
func TestCommittedFiltersAreCurrent(t *testing.T) {
	if _, err := os.Stat("/usr/include/seccomp.h"); err != nil {
		t.Fatalf("libseccomp-dev is not installed; scripts/deps test installs it: %v", err)
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "-tags", "seccompgen", "./seccompgen", "-out", dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOARCH=", "GOOS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	for _, pattern := range []string{"*.bpf", "*.pfc"} {
		made, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		committed, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(made) != len(committed) || len(made) != len(Variants())*len(Architectures()) {
			t.Errorf("%s: %d generated, %d committed", pattern, len(made), len(committed))
		}
		for _, path := range made {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Base(path)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s differs from what the policy gives (%v): run go generate", filepath.Base(path), err)
			}
		}
	}
}
