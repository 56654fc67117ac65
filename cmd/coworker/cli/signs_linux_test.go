package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestSigns: each spelling is noticed however it is cut, all text passes, and nothing is noticed that was not looked for.
func TestSigns(t *testing.T) {
	for s, texts := range signTexts {
		for _, part := range texts {
			text := "curl: (6) " + strings.Repeat("x", 100) + part + " and more\n"
			for cut := range len(text) {
				var out bytes.Buffer
				w := &textWatch{w: &out, look: []sign{readOnly, noNetwork}}
				for _, piece := range []string{text[:cut], text[cut:]} {
					if _, err := w.Write([]byte(piece)); err != nil {
						t.Fatal(err)
					}
				}
				if !w.met(s) || out.String() != text {
					t.Fatalf("%q cut at %d: met %v", part, cut, w.met(s))
				}
				if other := 1 - s; w.met(other) {
					t.Fatalf("%q is taken for the other sign", part)
				}
			}
			blind := &textWatch{w: &bytes.Buffer{}}
			if blind.Write([]byte(text)); blind.met(s) {
				t.Errorf("%q is noticed without looking", part)
			}
		}
	}
}
