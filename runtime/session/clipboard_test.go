package session

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// filtered writes the pieces one after the other.
func filtered(t testing.TB, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	f := NewClipboardFilter(&out)
	for _, p := range pieces {
		if n, err := f.Write([]byte(p)); err != nil || n != len(p) {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
	}
	return out.String()
}

var clipboardCases = []struct{ name, in, want string }{
	{"plain text", "hello, wörld\r\n", "hello, wörld\r\n"},
	{"set", "a\x1b]52;c;aGk=\x07b", "ab"},
	{"set with ST", "a\x1b]52;c;aGk=\x1b\\b", "ab"},
	{"set with C1 ST", "a\x1b]52;c;aGk=\xc2\x9cb", "ab"},
	{"C1 introducer", "a\xc2\x9d52;c;aGk=\x07b", "ab"},
	{"query", "\x1b]52;c;?\x07", ""},
	{"no selection", "\x1b]52;;aGk=\x07", ""},
	{"leading zeros", "\x1b]00052;c;aGk=\x07x", "x"},
	{"cancelled", "\x1b]52;c;aG\x18x", "x"},
	{"substituted", "\x1b]52;c;aG\x1ax", "x"},
	{"ended by another sequence", "\x1b]52;c;aG\x1b[1mx", "\x1b[1mx"},
	{"ended by another of them", "\x1b]52;c;aG\x1b]52;c;aH\x07x", "x"},
	{"doubled escape", "\x1b\x1b]52;c;aGk=\x07x", "\x1bx"},
	{"tmux passthrough", "\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\x", "\x1bPtmux;\x1b\x1b\\x"},
	{"control character in the number", "\x1b]5\x002;c;aGk=\x07x", "x"},
	{"control character before the bracket", "\x1b\n]52;c;aGk=\x07x", "x"},
	{"bell before the bracket", "\x1b\x07]52;c;aGk=\x07x", "x"},
	{"delete before the bracket", "\x1b\x7f]52;c;aGk=\x07x", "x"},
	{"kitty", "\x1b]5522;type=write\x1b\\x", "x"},
	{"iterm2", "\x1b]1337;Copy=:aGk=\x07\x1b]1337;CopyToClipboard=\x07x", "x"},
	{"iterm2 image stays", "\x1b]1337;File=inline=1:aGk=\x07x", "\x1b]1337;File=inline=1:aGk=\x07x"},
	{"title", "\x1b]0;52;c;aGk=\x07", "\x1b]0;52;c;aGk=\x07"},
	{"link", "\x1b]8;;https://example.com\x1b\\x\x1b]8;;\x1b\\", "\x1b]8;;https://example.com\x1b\\x\x1b]8;;\x1b\\"},
	{"number that begins alike", "\x1b]520;a\x07\x1b]5;52;c\x07", "\x1b]520;a\x07\x1b]5;52;c\x07"},
	{"colours and movement", "\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h\x1bM", "\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h\x1bM"},
	{"latin letters with the byte of C1", "Â¢Ã\u009c", "Â¢Ã\u009c"},
	{"raw C1 bytes", "\x9d52;c;x\x07", "\x9d52;c;x\x07"},
}

func TestClipboardFilter(t *testing.T) {
	for _, tt := range clipboardCases {
		t.Run(tt.name, func(t *testing.T) {
			if got := filtered(t, tt.in); got != tt.want {
				t.Errorf("whole: got %q, want %q", got, tt.want)
			}
			for i := range len(tt.in) + 1 {
				if got := filtered(t, tt.in[:i], tt.in[i:]); got != tt.want {
					t.Errorf("split at %d: got %q, want %q", i, got, tt.want)
				}
			}
			if got := filtered(t, strings.Split(tt.in, "")...); got != tt.want {
				t.Errorf("split everywhere: got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestClipboardFilterStuffing hides the number behind more filling than the filter keeps.
func TestClipboardFilterStuffing(t *testing.T) {
	for _, filling := range []string{"\x00", "0", "\n", "\x01"} {
		for _, n := range []int{1, 60, 64, 65, maxPending - 3, maxPending, maxPending + 1, 10_000} {
			in := "\x1b]" + strings.Repeat(filling, n) + "52;c;aGk=\x07"
			if out := filtered(t, in); setsClipboard(out) {
				t.Errorf("%d times %q: %q passed", n, filling, out[:min(len(out), 20)])
			}
			in = "\x1b" + strings.Repeat(filling, n) + "]52;c;aGk=\x07"
			if out := filtered(t, in); filling != "0" && setsClipboard(out) {
				t.Errorf("%d times %q before the bracket passed", n, filling)
			}
		}
	}
}

// setsClipboard is a terminal that knows nothing but these sequences, written apart from the filter:
// it walks through the states of the VT500 parser.
func setsClipboard(s string) bool {
	const ground, escape, osc = 0, 1, 2
	state := ground
	var text []byte
	isCommand := func() bool {
		number := strings.TrimLeft(string(text), "0")
		for _, c := range []string{"52;", "5522;", "1337;Copy"} {
			if strings.HasPrefix(number, c) {
				return true
			}
		}
		return false
	}
	for i := range len(s) {
		b := s[i]
		switch {
		case b == 0x1b:
			state = escape
		case b == 0x18 || b == 0x1a:
			state = ground
		case state == escape && b == ']':
			state, text = osc, nil
		case state == escape && (b < 0x20 || b == 0x7f):
		case state == escape:
			state = ground
		case state == ground && b == 0x9d && i > 0 && s[i-1] == 0xc2:
			state, text = osc, nil
		case state == osc && b == 0x07:
			state = ground
		case state == osc && b >= 0x20:
			text = append(text, b)
			if isCommand() {
				return true // a terminal that waits for the end is only slower
			}
		}
	}
	return false
}

func FuzzClipboardFilter(f *testing.F) {
	for _, c := range clipboardCases {
		f.Add([]byte(c.in), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		whole := filtered(t, string(in))
		if setsClipboard(whole) {
			t.Fatalf("%q passes as %q", in, whole)
		}
		if at < 0 || at > len(in) {
			at = len(in) / 2
		}
		if got := filtered(t, string(in[:at]), string(in[at:])); got != whole {
			t.Fatalf("split at %d gives %q, whole gives %q", at, got, whole)
		}
		if bytes.IndexByte(in, esc) >= 0 || bytes.IndexByte(in, c1) >= 0 {
			return
		}
		if whole != string(in) {
			t.Fatalf("%q was altered to %q", in, whole)
		}
	})
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestClipboardFilterPassesErrors(t *testing.T) {
	if _, err := NewClipboardFilter(brokenWriter{}).Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}
