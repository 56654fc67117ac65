package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/audit"
	"coworker/platform/config"
	"coworker/platform/paths"
	"coworker/platform/sqlite"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

func TestExitCode(t *testing.T) {
	refused := &session.RefusedError{Level: enforce.Partial, Wanted: enforce.Enforced}
	unrecorded := fmt.Errorf("%w: %w", audit.ErrNotRecorded, &sqlite.Error{Op: "commit", Path: "/s/coworker.db", Err: sqlite.ErrFull})
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"own code", &statusError{7}, 7},
		{"own code with a report that is missing", joinReport(&statusError{7}, errors.New("disk")), 7},
		{"success with a report that is missing", joinReport(nil, errors.New("disk")), exitInternal},
		{"not found", &startError{code: 127}, 127},
		{"not executable", &startError{code: 126}, 126},
		{"time-out", &timeoutError{time.Second}, exitTimeout},
		{"limit", &limitError{err: errors.New("disk")}, exitKilled},
		{"scan", errors.Join(&session.ScanError{Tree: "/w", Err: fs.ErrPermission}), exitConfiguration},
		{"refused", refused, exitWalls},
		{"refused and torn down badly", errors.Join(refused, errors.New("left behind")), exitWalls},
		{"refused because it cannot be recorded", errors.Join(refused, unrecorded), exitInternal},
		{"cell binary", &wallsError{err: errors.New("digest")}, exitWalls},
		{"direct", &deniedError{}, exitDenied},
		{"usage", &usageError{}, exitConfiguration},
		{"request", &wallspec.Error{}, exitConfiguration},
		{"settings", fmt.Errorf("load: %w", &config.Error{}), exitConfiguration},
		{"unsafe settings", fmt.Errorf("x: %w", config.ErrUnsafe), exitConfiguration},
		{"unsafe folder", fmt.Errorf("x: %w", paths.ErrUnsafe), exitConfiguration},
		{"record", unrecorded, exitInternal},
		{"tampered", &audit.TamperError{Row: 3}, exitFailure},
		{"no row", fmt.Errorf("%w: 9", audit.ErrNoRow), exitFailure},
		{"check", &failedError{}, exitFailure},
		{"unknown", errors.New("surprise"), exitInternal},
		{"cancelled", context.Canceled, exitInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ExitCode(tt.err); got != tt.want {
				t.Errorf("ExitCode(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"the command has said it", &statusError{3}, ""},
		{"hint", &usageError{text: "no", hint: "yes"}, "error: no\nhint: yes\n"},
		{"no hint", errors.New("no"), "error: no\n"},
		{"hostile text", &usageError{text: "path \"/a\nerror: forged\n\x1b[31m\u202e\xff\""},
			"error: path \"/a\n       error: forged\n       \\x1b[31m\\u202e\\xff\"\n"},
		{"hostile hint", &usageError{text: "no", hint: "x\nhint: rm"}, "error: no\nhint: x\n       hint: rm\n"},
		{"full disk under a refusal", errors.Join(&session.RefusedError{Cause: sqlite.ErrFull}),
			"error: walls not proved: no space left for the database\nhint: free some space on the disk that holds the state folder; without a record nothing is run\n"},
		{"report is missing", joinReport(&statusError{3}, errors.New("disk")), "error: the command ended with status 3\n       write the report: disk\n"},
		{"permission", fmt.Errorf("open: %w", fs.ErrPermission), "error: open: permission denied\nhint: check the owner and the mode of that path\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			Report(&out, tt.err)
			if out.String() != tt.want {
				t.Errorf("got  %q\nwant %q", out.String(), tt.want)
			}
		})
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"", "plain", "ä€😀", "a\nb", "\x1b]52;c;aGk=\x07", "\xff\xfe", "\u202e\u2028\u200b\ufeff", "\u009b31m", strings.Repeat("x", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		for _, r := range got {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfffd && !strings.ContainsRune(s, r) {
				t.Fatalf("visible(%q) = %q holds %U", s, got, r)
			}
		}
		if again := visible(got); again != got {
			t.Fatalf("visible twice: %q, then %q", got, again)
		}
	})
}
