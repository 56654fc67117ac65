package protect

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold returns the name as a case-insensitive file system compares it: APFS and HFS+, NTFS, and ext4 or f2fs with the
// casefold feature (Unicode full case folding after dropping default-ignorable code points, Linux fs/unicode). It is wide
// on purpose: a name that only some file system would take for .git counts as .git.
func fold(name string) string {
	if isASCII(name) {
		return trimWindows(lowerASCII(name))
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && size == 1 {
			b.WriteByte(name[i]) // not UTF-8: bytes compare as bytes
			i++
			continue
		}
		i += size
		if ignorable(r) {
			continue
		}
		if many, ok := fullFolds[r]; ok {
			b.WriteString(many)
			continue
		}
		b.WriteRune(simpleFold(r))
	}
	return trimWindows(b.String())
}

// trimWindows drops what NTFS drops: trailing dots and spaces, a stream suffix, and the short name git itself guards
// against (CVE-2014-9390, CVE-2019-1352).
func trimWindows(name string) string {
	last := len(name) - 1
	if last > 0 && (name[last] == '.' || name[last] == ' ') {
		if trimmed := strings.TrimRight(name, ". "); trimmed != "" {
			name = trimmed
		}
	}
	if i := strings.IndexByte(name, ':'); i > 0 {
		name = strings.TrimRight(name[:i], ". ")
	}
	if name == "git~1" {
		return ".git"
	}
	return name
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lowerASCII allocates only when there is something to lower.
func lowerASCII(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			return strings.ToLower(s)
		}
	}
	return s
}

// simpleFold is the smallest lower-case member of the rune's fold orbit: K (U+212A) gives k, ſ (U+017F) gives s.
func simpleFold(r rune) rune {
	low := unicode.ToLower(r)
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		if o < unicode.MaxASCII && o >= 'a' {
			return o
		}
		low = min(low, unicode.ToLower(o))
	}
	return low
}

// fullFolds are the full case foldings (CaseFolding.txt, status F) that give only ASCII letters, and the canonical
// decompositions that give ASCII.
var fullFolds = map[rune]string{
	'\u00df': "ss", '\u1e9e': "ss",
	'\ufb00': "ff", '\ufb01': "fi", '\ufb02': "fl", '\ufb03': "ffi", '\ufb04': "ffl", '\ufb05': "st", '\ufb06': "st",
	'\u1fef': "`", '\u037e': ";",
}

// ignorable reports the default-ignorable code points, which HFS+ and casefold directories skip when they compare names.
func ignorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x3164, r == 0xfeff, r == 0xffa0,
		r >= 0x115f && r <= 0x1160, r >= 0x17b4 && r <= 0x17b5, r >= 0x180b && r <= 0x180f,
		r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f,
		r >= 0xfe00 && r <= 0xfe0f, r >= 0xfff0 && r <= 0xfff8, r >= 0x1bca0 && r <= 0x1bca3,
		r >= 0x1d173 && r <= 0x1d17a, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

func sortedKeys(table map[string]next) []string {
	keys := make([]string, 0, len(table))
	for k := range table {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Fold returns the name as case-insensitive file systems compare it; see fold.
func Fold(name string) string { return fold(name) }

// Folds lists the characters outside ASCII that Fold makes ASCII characters of, or leaves out (""). With Fold's rules for
// ASCII that is all there is to know about it where only ASCII names count. Left out here is U+E0000 to U+E0FFF, which
// Fold leaves out as a whole.
func Folds() map[rune]string {
	list := map[rune]string{'\u0130': "i", '\u017f': "s", '\u212a': "k"}
	for r, to := range fullFolds {
		list[r] = to
	}
	for r := rune(utf8.RuneSelf); r < 0x20000; r++ {
		if ignorable(r) {
			list[r] = ""
		}
	}
	return list
}
