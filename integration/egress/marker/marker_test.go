package marker

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func utf16Text(s string, high int) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		pair := []byte{byte(u), byte(u >> 8)}
		if high == 1 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		b.Write(pair)
	}
	return b.String()
}

// TestFind wants a marker found in each form, whatever stands round it, and no other marker.
func TestFind(t *testing.T) {
	run := Run([]byte("seed"))
	f := NewFinder(run, []string{"one", "two"})
	for name, encode := range map[string]func(string) string{
		"raw": func(s string) string { return s }, "upper": strings.ToUpper, "reversed": reversed,
		"hex": func(s string) string { return hex.EncodeToString([]byte(s)) }, "HEX": func(s string) string { return fmt.Sprintf("%X", s) },
		"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"url":    func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"base32": func(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) },
		"label":  func(s string) string { return strings.ToLower(base32.StdEncoding.EncodeToString([]byte(s))) },
		"utf16":  func(s string) string { return utf16Text(s, 0) }, "UTF16": func(s string) string { return utf16Text(s, 1) },
	} {
		for before := range 7 {
			text := strings.Repeat("#", before) + Of(run, "one") + "~~~~"
			data := []byte("\x01\x02" + encode(text) + "\x03")
			if got := f.Find(data); !slices.Equal(got, []string{"one"}) {
				t.Errorf("%s after %d bytes: %q, want one", name, before, got)
			}
		}
	}
	if got := f.Find([]byte(Of(run, "one") + Of(run, "two"))); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("both markers: %q", got)
	}
}

func TestFindNothing(t *testing.T) {
	run := Run([]byte("seed"))
	f := NewFinder(run, []string{"one"})
	other := Run([]byte("other seed"))
	for _, data := range []string{"", run[:runSize-1], Of(other, "one"), base64.StdEncoding.EncodeToString([]byte(other))} {
		if got := f.Find([]byte(data)); got != nil {
			t.Errorf("Find(%q) = %q", data, got)
		}
	}
	if got := f.Find([]byte("x" + run + "y")); !slices.Equal(got, []string{Unknown}) {
		t.Errorf("the word of the run alone: %q", got)
	}
}

func TestOf(t *testing.T) {
	run := Run([]byte("seed"))
	if one, two := Of(run, "one"), Of(run, "two"); one == two || len(one) != 25 || !strings.HasPrefix(one, run) || one != Of(run, "one") {
		t.Errorf("markers %q and %q", one, two)
	}
	for _, form := range Forms(run) {
		if len(form) < 12 {
			t.Errorf("the form %q is short enough to occur by accident", form)
		}
	}
}
