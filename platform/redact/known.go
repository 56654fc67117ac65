package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// index finds known values and their encodings. Forms are looked up by their
// first four bytes, so the time does not grow with the number of secrets as
// long as they begin differently, and a text of n bytes costs n map lookups at
// worst.
type index struct {
	byHead map[uint32][]form // longest first
	filter [1 << 10]uint64   // one bit per hash of the first four bytes
	seen   map[string]bool
}

type form struct {
	text   string
	label  string
	base64 bool // part of a longer run: the whole run goes
}

// head is the least number of bytes of a form.
const head = 4

func newIndex(secrets []Secret) index {
	ix := index{byHead: map[uint32][]form{}, seen: map[string]bool{}}
	for _, s := range secrets {
		label := labelOf(s.Name)
		if label == "" || strings.Contains(strings.ToLower(label), strings.ToLower(s.Value)) {
			label = ""
		}
		ix.addValue(s.Value, label)
		// A multi-line secret (a key file) is also printed line by line.
		for line := range strings.Lines(s.Value) {
			if line = strings.TrimSpace(line); len(line) >= 16 {
				ix.addValue(line, label)
			}
		}
	}
	for _, forms := range ix.byHead {
		slices.SortFunc(forms, func(a, b form) int { return len(b.text) - len(a.text) })
	}
	return ix
}

func (ix *index) addValue(v, label string) {
	v = strings.TrimSpace(v)
	// A value that is part of the marker itself can never be made to vanish.
	if len(v) < MinValue || strings.Contains("[redacted:]", strings.ToLower(v)) {
		return
	}
	for _, text := range plainForms(v) {
		ix.add(form{text: text, label: label})
	}
	for _, text := range base64Forms(v) {
		ix.add(form{text: text, label: label, base64: true})
	}
}

func (ix *index) add(f form) {
	if len(f.text) < head || ix.seen[f.text] {
		return
	}
	ix.seen[f.text] = true
	h := headOf(f.text, 0)
	ix.byHead[h] = append(ix.byHead[h], f)
	bit := hashHead(h)
	ix.filter[bit>>6] |= 1 << (bit & 63)
}

func plainForms(v string) []string {
	query := url.QueryEscape(v)
	path := url.PathEscape(v)
	var every strings.Builder
	for i := range len(v) {
		every.WriteByte('%')
		every.WriteString(hex.EncodeToString([]byte{v[i]}))
	}
	forms := []string{
		v, query, path, lowerPercent(query), lowerPercent(path),
		strings.ReplaceAll(query, "+", "%20"),
		every.String(), strings.ToUpper(every.String()),
		hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))),
		html.EscapeString(v),
		strings.ReplaceAll(v, "\n", "\r\n"),
		strings.ReplaceAll(v, `'`, `'\''`), // inside single quotes of a shell
	}
	// json.Marshal escapes <, > and &; other writers do not.
	if b, err := json.Marshal(v); err == nil {
		escaped := string(b[1 : len(b)-1])
		plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(escaped)
		forms = append(forms, escaped, plain)
		// JSON inside JSON: a tool call that carries a document.
		for _, inner := range []string{escaped, plain} {
			if b, err := json.Marshal(inner); err == nil {
				forms = append(forms, string(b[1:len(b)-1]))
			}
		}
	}
	return forms
}

// lowerPercent writes percent escapes with small hex digits.
func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(s[i+1:i+3]))
		}
	}
	return string(b)
}

// base64Forms returns the characters that v alone decides when it is encoded
// as part of something longer ("user:" + v in HTTP basic authentication), for
// the three ways v can sit in the groups of three bytes. The characters at the
// edges also depend on the neighbours and are left out.
func base64Forms(v string) []string {
	var forms []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			text := enc.EncodeToString(append(make([]byte, offset), v...))
			start := (offset*8 + 5) / 6
			end := (offset + len(v)) * 8 / 6
			if end-start >= 6 {
				forms = append(forms, text[start:end])
			}
		}
	}
	return forms
}

func (ix *index) find(s string, spans []span) []span {
	if len(ix.byHead) == 0 {
		return spans
	}
	spans = ix.scan(s, nil, spans)
	if strings.IndexByte(s, '\n') < 0 {
		return spans
	}
	// A terminal or an encoder may have wrapped the value over lines.
	joined, cuts := unwrap(s)
	return ix.scan(joined, cuts, spans)
}

// scan adds the matches in s, at the positions that they have in the text
// before the cuts.
func (ix *index) scan(s string, cuts []cut, spans []span) []span {
	for i := 0; i+head <= len(s); {
		h := headOf(s, i)
		bit := hashHead(h)
		if ix.filter[bit>>6]&(1<<(bit&63)) == 0 {
			i++
			continue
		}
		f, ok := ix.match(s[i:], h)
		if !ok {
			i++
			continue
		}
		start, end := i, i+len(f.text)
		// The next match may overlap a plain one; a base64 run goes whole.
		i++
		if f.base64 {
			start, end = widen(s, start, end)
			i = end
		}
		start, end = before(cuts, start), before(cuts, end-1)+1
		if n := len(spans); n > 0 && spans[n-1].start <= start && start < spans[n-1].end {
			spans[n-1].end = max(spans[n-1].end, end)
			continue
		}
		spans = append(spans, span{start, end, f.label})
	}
	return spans
}

func (ix *index) match(s string, h uint32) (form, bool) {
	for _, f := range ix.byHead[h] {
		if strings.HasPrefix(s, f.text) {
			return f, true
		}
	}
	return form{}, false
}

// widen grows a match to the run of base64 characters around it, within a
// bound: what is next to a secret in one encoding belongs to it (and the
// characters at the seam still hold some of its bits).
func widen(s string, start, end int) (int, int) {
	const most = 512
	for n := 0; n < most && start > 0 && isBase64(s[start-1]); n++ {
		start--
	}
	for n := 0; n < most && end < len(s) && isBase64(s[end]); n++ {
		end++
	}
	return start, end
}

// cut is a place where bytes were left out: what was at position at or later
// stood removed bytes further on.
type cut struct{ at, removed int }

// before maps a position to the one it had before the cuts.
func before(cuts []cut, pos int) int {
	n, _ := slices.BinarySearchFunc(cuts, pos+1, func(c cut, pos int) int { return c.at - pos })
	if n == 0 {
		return pos
	}
	return pos + cuts[n-1].removed
}

// unwrap drops line ends, with the indentation and shell backslash around
// them.
func unwrap(s string) (string, []cut) {
	var b strings.Builder
	b.Grow(len(s))
	var cuts []cut
	removed := 0
	for i := 0; i < len(s); {
		n := breakAt(s, i)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		i += n
		removed += n
		cuts = append(cuts, cut{b.Len(), removed})
	}
	return b.String(), cuts
}

// breakAt returns the length of the line break at s[i], or 0.
func breakAt(s string, i int) int {
	j := i
	if s[j] == '\\' {
		j++
	}
	if j < len(s) && s[j] == '\r' {
		j++
	}
	if j >= len(s) || s[j] != '\n' {
		return 0
	}
	for j++; j < len(s) && isSpace(s[j]); {
		j++
	}
	return j - i
}

func headOf(s string, i int) uint32 {
	return uint32(s[i]) | uint32(s[i+1])<<8 | uint32(s[i+2])<<16 | uint32(s[i+3])<<24
}

func hashHead(h uint32) uint32 { return h * 2654435761 >> 16 }
