package hostmatch

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// acePrefix begins an A-label (RFC 5890 section 2.3.2.5).
const acePrefix = "xn--"

// refusedALabel checks what can be checked without the Unicode tables of a registry: the label decodes, encodes back to
// the very same text, has something that is not ASCII, and consists of letters, marks and digits, which excludes
// full-width slashes, dots and symbols (RFC 5891 section 5.4, RFC 5892 section 1).
func refusedALabel(label string) string {
	runes, err := decodePunycode(label[len(acePrefix):])
	if err != nil {
		return fmt.Sprintf("label %s is not punycode: %s", Quote(label), err)
	}
	ascii := true
	for i, r := range runes {
		ascii = ascii && r < utf8.RuneSelf
		switch {
		case unicode.IsMark(r) && i == 0:
			return fmt.Sprintf("label %s begins with a combining mark", Quote(label))
		case !inULabel(r):
			return fmt.Sprintf("label %s stands for a text with %U", Quote(label), r)
		}
	}
	if ascii {
		return fmt.Sprintf("label %s stands for plain ASCII", Quote(label))
	}
	if back, err := encodePunycode(runes); err != nil || acePrefix+back != label {
		return fmt.Sprintf("label %s is not the shortest form of what it stands for", Quote(label))
	}
	return ""
}

// inULabel allows letters that are not upper case, marks, decimal digits, hyphen, and the joiners and dots that RFC 5892
// appendix A allows in context.
func inULabel(r rune) bool {
	switch r {
	case '-', 0x00B7, 0x0375, 0x05F3, 0x05F4, 0x30FB, 0x200C, 0x200D:
		return true
	}
	return !unicode.IsUpper(r) && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r))
}

// plain lists scripts in which no character of RFC 5892's PVALID class needs normalisation, so that a rule typed by a
// person can be turned into A-labels without mapping tables. Other scripts are written as xn-- in a rule.
var plain = []struct {
	name   string
	lo, hi rune
}{
	{"latin", 'a', 'z'}, {"latin", 0x00DF, 0x00F6}, {"latin", 0x00F8, 0x00FF}, {"latin", 0x0101, 0x0131}, {"latin", 0x0135, 0x013E},
	{"latin", 0x0142, 0x0148}, {"latin", 0x014B, 0x017E}, {"greek", 0x03AC, 0x03CE}, {"cyrillic", 0x0430, 0x045F},
	{"japanese", 0x3041, 0x3096}, {"japanese", 0x30A1, 0x30FA}, {"japanese", 0x30FC, 0x30FC}, {"han", 0x4E00, 0x9FFF}, {"hangul", 0xAC00, 0xD7A3},
}

// toALabels turns the labels of a rule that are not ASCII into A-labels. A label that mixes scripts is refused: it is far
// more often a look-alike than a name.
func toALabels(name string) (string, error) {
	labels := strings.Split(name, ".")
	pos := 0
	for i, label := range labels {
		if reason := refusedULabel(label); reason != "" {
			return "", &SyntaxError{name, pos, reason}
		}
		pos += len(label) + 1
		if isASCII(label) {
			continue
		}
		enc, err := encodePunycode([]rune(strings.ToLower(label)))
		if err != nil {
			return "", &SyntaxError{name, pos, err.Error()}
		}
		labels[i] = acePrefix + enc
	}
	return strings.Join(labels, "."), nil
}

func refusedULabel(label string) string {
	if isASCII(label) {
		return ""
	}
	if len(label) > 4*maxLabel || !utf8.ValidString(label) {
		return "label is too long or not UTF-8"
	}
	script := ""
	for _, upper := range label {
		r := unicode.ToLower(upper)
		if r == '-' || '0' <= r && r <= '9' {
			continue
		}
		s := scriptOf(r)
		switch {
		case s == "", r < utf8.RuneSelf && upper >= utf8.RuneSelf: // U+0130 and the Kelvin sign fold to ASCII
			return fmt.Sprintf("%U has to be written in the xn-- form", upper)
		case script == "":
			script = s
		case script != s && (script != "japanese" && script != "han" || s != "japanese" && s != "han"):
			return fmt.Sprintf("label mixes %s and %s letters; if that is meant, write the xn-- form", script, s)
		}
	}
	return ""
}

func scriptOf(r rune) string {
	for _, p := range plain {
		if p.lo <= r && r <= p.hi && !unicode.IsUpper(r) {
			return p.name
		}
	}
	return ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
