// Package redact takes secrets out of text and values before they are stored
// or sent to a model: values known to be secret, tokens of well-known formats,
// and whatever stands under a key that names a secret.
//
// It is a pure function of its input and of the secrets it was given; anyone
// outside the walls may import it. It must not read the environment, files or
// the secret store, and it must never offer a way to switch a detector off.
//
// It is the last line of a boundary, not the boundary: an agent that wants to
// smuggle a value out can encode it in more ways than any list has.
package redact

import (
	"slices"
	"strings"
)

// Marker replaces what a detector without a better label found.
const Marker = "[redacted]"

// rounds bounds how often the output is looked at again. A replacement can put
// two halves next to each other that mean something together.
const rounds = 4

// Redactor removes secrets. It is immutable and safe for concurrent use; the
// zero value knows no values and still applies every pattern.
type Redactor struct {
	known index
}

// Secret is a value that must not appear, and the name shown in its place.
type Secret struct {
	Name  string
	Value string
}

// MinValue is the shortest known value that is searched for. Shorter ones
// would turn ordinary text into markers.
const MinValue = 5

// New returns a redactor for the patterns and the given values, with their
// usual encodings (base64, percent, hex, JSON, HTML). Values shorter than
// MinValue are covered by the key and pattern detectors only.
func New(secrets ...Secret) *Redactor {
	return &Redactor{known: newIndex(secrets)}
}

// span is a part of a text to replace.
type span struct {
	start, end int
	label      string
}

// String returns s with every secret replaced by a marker. Its time is linear
// in len(s). Redacting the result again changes nothing.
func (r *Redactor) String(s string) string {
	for range rounds {
		next := r.once(s)
		if next == s {
			return s
		}
		s = next
	}
	if r.once(s) != s {
		// No detector is known to get here; a text that never settles is
		// not shown at all.
		return Marker
	}
	return s
}

func (r *Redactor) once(s string) string {
	var spans []span
	spans = r.known.find(s, spans)
	spans = findTokens(s, spans)
	spans = findKeyBlocks(s, spans)
	spans = findUserinfo(s, spans)
	spans = findSchemes(s, spans)
	spans = findAssignments(s, spans)
	spans = findFlags(s, spans)
	spans = findPasswordWords(s, spans)
	return replace(s, spans)
}

// replace cuts the spans out of s. Overlapping spans become one, with the
// label of the first.
func replace(s string, spans []span) string {
	if len(spans) == 0 {
		return s
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	var b strings.Builder
	b.Grow(len(s))
	done := 0
	for i := 0; i < len(spans); {
		first := spans[i]
		end := first.end
		for i++; i < len(spans) && spans[i].start < end; i++ {
			end = max(end, spans[i].end)
		}
		b.WriteString(s[done:first.start])
		b.WriteString(mark(first.label))
		done = end
	}
	b.WriteString(s[done:])
	return b.String()
}

func mark(label string) string {
	if label == "" {
		return Marker
	}
	return "[redacted:" + label + "]"
}

// markerAt returns the length of a marker that starts at s[i], or 0.
func markerAt(s string, i int) int {
	rest := s[i:]
	if strings.HasPrefix(rest, Marker) {
		return len(Marker)
	}
	after, ok := strings.CutPrefix(rest, "[redacted:")
	if !ok {
		return 0
	}
	n := 0
	for n < len(after) && n < maxLabel && isLabelByte(after[n]) {
		n++
	}
	if n == 0 || n == len(after) || after[n] != ']' {
		return 0
	}
	return len("[redacted:") + n + 1
}

const maxLabel = 48

func isLabelByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

// labelOf makes a name safe to stand inside a marker.
func labelOf(name string) string {
	var b strings.Builder
	for i := 0; i < len(name) && b.Len() < maxLabel; i++ {
		if isLabelByte(name[i]) {
			b.WriteByte(name[i])
		}
	}
	return b.String()
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlnum(c byte) bool { return isDigit(c) || isUpper(c) || isLower(c) }
func isHex(c byte) bool   { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
func isWord(c byte) bool  { return isAlnum(c) || c == '_' || c == '-' }
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// isBase64 accepts both alphabets of RFC 4648.
func isBase64(c byte) bool { return isWord(c) || c == '+' || c == '/' || c == '=' }
