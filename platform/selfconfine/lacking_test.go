package selfconfine

import (
	"strings"
	"testing"
)

func TestLacking(t *testing.T) {
	for abi, want := range []string{"keeps its user's rights to files", "cutting off files", "cutting off files", "listening on TCP ports", "", ""} {
		got := Lacking(abi)
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("ABI %d: %q, want %q", abi, got, want)
		}
	}
	if strings.Contains(Lacking(truncateABI), "files") {
		t.Error("Landlock with a right to truncate does not stop it")
	}
}
