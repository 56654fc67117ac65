package enforcetest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
)

func TestOffFollowsTheBuild(t *testing.T) {
	for _, fault := range append(enforce.Walls(), "", "unknown") {
		for _, asked := range enforce.Walls() {
			want := enforcetest.Built && fault == asked
			if got := enforcetest.Off(enforce.Spec{Fault: fault}, asked); got != want {
				t.Errorf("Off(fault %q, %q) = %v, want %v", fault, asked, got, want)
			}
		}
	}
}

// TestReleaseHasNoSwitch builds the same program both ways. Only the test build may hold the
// function, the branch behind it, and the behaviour.
func TestReleaseHasNoSwitch(t *testing.T) {
	const symbol = "enforcetest.Off"
	const branch = "the branch without the wall"
	for _, tc := range []struct {
		tags   string
		holds  bool
		answer string
	}{
		{"", false, "raised\n"},
		{"walltest", true, branch + "\n"},
	} {
		t.Run("tags="+tc.tags, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "uses")
			run(t, "go", "build", "-tags", tc.tags, "-o", bin, "./testdata/uses")
			if got := strings.Contains(run(t, "go", "tool", "nm", bin), symbol); got != tc.holds {
				t.Errorf("symbol %s in the binary: %v, want %v", symbol, got, tc.holds)
			}
			data, err := os.ReadFile(bin)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(data), branch); got != tc.holds {
				t.Errorf("text of the open branch in the binary: %v, want %v", got, tc.holds)
			}
			if got := run(t, bin, string(enforce.Kernel)); got != tc.answer {
				t.Errorf("with the fault kernel it says %q, want %q", got, tc.answer)
			}
		})
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
