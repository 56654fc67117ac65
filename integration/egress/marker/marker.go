// Package marker makes the random words that ways out try to smuggle, and finds them in captured bytes in every form in
// which an attempt may have written them.
//
// Only integration/egress and its smuggler may import it. How frames are captured does not belong here.
package marker

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// runSize is how many letters all markers of one run share. Random ones of this number do not occur by accident: 26^15.
const runSize = 15

// Of makes the marker of one attempt: the word of the run, which finds all of them, and letters of the attempt's own. A
// marker is 25 lower-case letters, so it fits into a DNS label, a header and a file name.
func Of(run, attempt string) string {
	sum := sha256.Sum256([]byte(run + " " + attempt))
	return run + letters(sum[:10])
}

// Run makes the word of a run from random bytes.
func Run(random []byte) string {
	sum := sha256.Sum256(random)
	return letters(sum[:runSize])
}

func letters(data []byte) string {
	var b strings.Builder
	for _, c := range data {
		b.WriteByte('a' + c%26)
	}
	return b.String()
}

// Forms are the ways in which a word may stand in bytes. Where the form depends on what stands before the word (base64,
// base32), there is one entry for each distance, without the characters at the ends that mix with the neighbours.
func Forms(word string) [][]byte {
	reversed := []byte(word)
	slices.Reverse(reversed)
	forms := [][]byte{[]byte(word), reversed, []byte(hex.EncodeToString([]byte(word))), wide(word, 0), wide(word, 1)}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), word...))
		forms = append(forms, []byte(inner(text, before*8, len(word)*8, 6)))
	}
	for before := range 5 {
		text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(append(make([]byte, before), word...))
		forms = append(forms, []byte(inner(text, before*8, len(word)*8, 5)))
	}
	return forms
}

// inner cuts out the characters that hold bits of the word alone.
func inner(text string, from, size, bits int) string {
	return text[(from+bits-1)/bits : (from+size)/bits]
}

// wide is UTF-16, little endian for 0 and big endian for 1.
func wide(word string, high int) []byte {
	out := make([]byte, 2*len(word))
	for i := range len(word) {
		out[2*i+high] = word[i]
	}
	return out
}

// Finder looks for the markers of one run.
type Finder struct {
	run      [][]byte
	attempts map[string][][]byte
}

// NewFinder knows the markers of these attempts.
func NewFinder(run string, attempts []string) *Finder {
	f := &Finder{run: lowered(Forms(run)), attempts: map[string][][]byte{}}
	for _, a := range attempts {
		f.attempts[a] = lowered(Forms(Of(run, a)))
	}
	return f
}

// lowered folds the case: DNS names may come in any, base32 is upper case, and hex is both. Folding base64 makes accidents
// likelier, and at 20 characters they still do not happen.
func lowered(forms [][]byte) [][]byte {
	for i := range forms {
		forms[i] = bytes.ToLower(forms[i])
	}
	return forms
}

// Unknown is what Find answers for bytes that hold the word of the run, but none of the markers as a whole.
const Unknown = "unknown attempt"

// Find lists the attempts whose markers stand in the data, sorted.
func (f *Finder) Find(data []byte) []string {
	data = bytes.ToLower(data)
	if !containsAny(data, f.run) {
		return nil
	}
	var found []string
	for name, forms := range f.attempts {
		if containsAny(data, forms) {
			found = append(found, name)
		}
	}
	if found == nil {
		return []string{Unknown}
	}
	slices.Sort(found)
	return found
}

func containsAny(data []byte, forms [][]byte) bool {
	return slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(data, form) })
}
