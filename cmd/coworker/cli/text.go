package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"coworker/platform/spelling"
)

// visible shows s on one line without anything that a terminal would obey or hide: control characters, line
// separators, direction marks (CVE-2021-42574) and bytes that are not UTF-8 are written as escapes.
func visible(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= 0x20 && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i, width := 0, 0; i < len(s); i += width {
		var r rune
		r, width = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// visibleLines is visible for text of several lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(strings.ReplaceAll(lines[i], "\t", "   "))
	}
	return strings.Join(lines, "\n")
}

// isTerminal reports whether w shows to a person.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// style colours words for people, where there are people and nobody objects (https://no-color.org).
type style struct{ on bool }

func styleFor(w io.Writer, getenv func(string) string) style {
	return style{on: isTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bad(text string) string { return s.paint("31", text) }
func (s style) faint(text string) string {
	return s.paint("2", text)
}

// table writes rows in aligned columns. Colour goes around a padded cell, so that escapes do not count as width.
type table struct {
	rows  [][]string
	paint func(row, column int, cell string) string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for r, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			padded := cell
			if i < len(row)-1 {
				padded += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
			if t.paint != nil {
				padded = t.paint(r, i, padded)
			}
			line.WriteString(padded)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// nearest finds the valid word that was probably meant: at most two slips (insert, drop, change) away.
func nearest(word string, valid []string) string {
	best, least := "", 3
	for _, v := range valid {
		if d := spelling.Distance(word, v); d < least && d < len(v) && d < len(word) {
			best, least = v, d
		}
	}
	return best
}
