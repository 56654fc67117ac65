package cli

import (
	"bytes"
	"strings"
	"testing"
)

// watched writes pieces through a watch, and tells what passed.
func watched(t *testing.T, look []sign, pieces ...string) (*textWatch, string) {
	t.Helper()
	var out bytes.Buffer
	w := &textWatch{w: &out, look: look}
	for _, p := range pieces {
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	return w, out.String()
}

// TestSigns: each spelling is noticed however it is cut, all text passes, and nothing is noticed that was not looked for.
func TestSigns(t *testing.T) {
	for s, texts := range signTexts {
		for _, part := range texts {
			checkSign(t, s, "curl: (6) "+strings.Repeat("x", 100)+part+" and more\n")
		}
	}
}

func checkSign(t *testing.T, s sign, text string) {
	t.Helper()
	for cut := range len(text) {
		w, passed := watched(t, []sign{readOnly, noNetwork}, text[:cut], text[cut:])
		if !w.met(s) || w.met(1-s) || passed != text {
			t.Fatalf("%q cut at %d: met %v, the other %v", text, cut, w.met(s), w.met(1-s))
		}
	}
	if blind, _ := watched(t, nil, text); blind.met(s) {
		t.Errorf("%q is noticed without looking", text)
	}
}
