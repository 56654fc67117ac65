// Package gitconfig reads git's configuration file format as git 2.39 does, and tells keys that can run a program, or send
// git elsewhere, from keys that cannot.
//
// It is used outside the wall on hostile bytes: what a session or a host program left in .git/config. It is pure, bounded
// and fails closed: what does not parse, and every key that is not on the list of inert ones, counts as executing. It
// imports the standard library only. What must not be added: file access, include handling (an include is a key that
// executes), and keys put on the inert list because "they look harmless": each needs a reason.
package gitconfig

import (
	"errors"
	"fmt"
	"strings"
)

// The bounds of one file. Git's own limit is INT_MAX bytes; a real file has a few kilobytes.
const (
	MaxBytes   = 1 << 20
	MaxEntries = 20_000
)

// ErrSyntax is what every parse error wraps.
var ErrSyntax = errors.New("bad git configuration")

// SyntaxError tells where a file stops being git configuration.
type SyntaxError struct {
	Line   int
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("git configuration line %d: %s", e.Line, e.Reason)
}

// Is makes every SyntaxError match ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// Entry is one key as git sees it. Name is section.key or section.subsection.key, with section and key in lower case.
type Entry struct {
	Name     string
	Value    string
	HasValue bool // false for a bare key, which git reads as true
	Line     int
}

// Split cuts the name at its first and last dot, as git's parse_config_key does.
func (e Entry) Split() (section, sub, key string) {
	first, last := strings.IndexByte(e.Name, '.'), strings.LastIndexByte(e.Name, '.')
	switch {
	case first < 0:
		return "", "", e.Name
	case first == last:
		return e.Name[:first], "", e.Name[first+1:]
	}
	return e.Name[:first], e.Name[first+1 : last], e.Name[last+1:]
}

// hasSub tells [section ""] from [section].
func (e Entry) hasSub() bool {
	return strings.IndexByte(e.Name, '.') != strings.LastIndexByte(e.Name, '.')
}

// Parse reads a whole file.
func Parse(data []byte) ([]Entry, error) {
	if len(data) > MaxBytes {
		return nil, &SyntaxError{Line: 1, Reason: fmt.Sprintf("%d bytes, more than %d", len(data), MaxBytes)}
	}
	if i := strings.IndexByte(string(data), 0); i >= 0 {
		// Git would cut the string there, and two programs would read two files.
		return nil, &SyntaxError{Line: 1 + strings.Count(string(data[:i]), "\n"), Reason: "a NUL byte"}
	}
	p := &parser{data: data, line: 1}
	p.skipBOM()
	for p.more() {
		if err := p.step(); err != nil {
			return nil, err
		}
	}
	return p.entries, nil
}

// parser is git's git_parse_source (config.c), one character at a time.
type parser struct {
	data    []byte
	pos     int
	line    int
	eof     bool
	prefix  string // the section with its dot
	entries []Entry
}

func (p *parser) fail(reason string) error { return &SyntaxError{Line: p.line, Reason: reason} }

func (p *parser) more() bool { return !p.eof && p.pos < len(p.data) }

// skipBOM skips a UTF-8 byte order mark at the very start. Git refuses a part of one; here its bytes are refused as text.
func (p *parser) skipBOM() {
	const bom = "\xef\xbb\xbf"
	if strings.HasPrefix(string(p.data[:min(3, len(p.data))]), bom) {
		p.pos = len(bom)
	}
}

// next is get_next_char: CR LF is LF, the end of the file is LF.
func (p *parser) next() byte {
	if p.pos >= len(p.data) {
		p.eof = true
		return '\n'
	}
	c := p.data[p.pos]
	p.pos++
	if c == '\r' && p.pos < len(p.data) && p.data[p.pos] == '\n' {
		c = '\n'
		p.pos++
	}
	if c == '\n' {
		p.line++
	}
	return c
}

// step reads up to the next section header, key or end of line.
func (p *parser) step() error {
	switch c := p.next(); {
	case c == '\n' || isSpace(c):
		return nil
	case c == '#' || c == ';':
		for p.next() != '\n' {
		}
		return nil
	case c == '[':
		return p.section()
	case !isAlpha(c):
		return p.fail(fmt.Sprintf("key starts with %q", c))
	default:
		return p.entry(c)
	}
}

// section reads [name], [name.sub] or [name "sub"] after the bracket.
func (p *parser) section() error {
	var name strings.Builder
	for {
		c := p.next()
		if p.eof {
			return p.fail("section header is not closed")
		}
		if c == ']' {
			break
		}
		if isSpace(c) {
			if err := p.subsection(&name, c); err != nil {
				return err
			}
			break
		}
		if !isKeyChar(c) && c != '.' {
			return p.fail(fmt.Sprintf("section name holds %q", c))
		}
		name.WriteByte(lower(c))
	}
	if name.Len() == 0 {
		return p.fail("section without a name")
	}
	p.prefix = name.String() + "."
	return nil
}

func (p *parser) subsection(name *strings.Builder, c byte) error {
	for isSpace(c) {
		if c == '\n' {
			return p.fail("section header is not closed")
		}
		c = p.next()
	}
	if c != '"' {
		return p.fail("subsection is not quoted")
	}
	name.WriteByte('.')
	for {
		c := p.next()
		if c == '"' {
			break
		}
		if c == '\\' {
			c = p.next()
		}
		if c == '\n' {
			return p.fail("subsection is not closed")
		}
		name.WriteByte(c)
	}
	if p.next() != ']' {
		return p.fail("section header is not closed")
	}
	return nil
}

// entry reads "key", "key = value" after the key's first letter.
func (p *parser) entry(c byte) error {
	var key strings.Builder
	line := p.line
	for isKeyChar(c) {
		key.WriteByte(lower(c))
		c = p.next()
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	e := Entry{Name: p.prefix + key.String(), Line: line}
	if c != '\n' {
		if c != '=' {
			return p.fail(fmt.Sprintf("%q after key %q", c, key.String()))
		}
		value, err := p.value()
		if err != nil {
			return err
		}
		e.Value, e.HasValue = value, true
	}
	if len(p.entries) == MaxEntries {
		return p.fail(fmt.Sprintf("more than %d keys", MaxEntries))
	}
	p.entries = append(p.entries, e)
	return nil
}

// value is parse_value: white space outside quotes becomes blanks and is dropped at both ends; a backslash joins lines.
func (p *parser) value() (string, error) {
	var b strings.Builder
	quoted, spaces := false, 0
	for {
		c := p.next()
		switch {
		case c == '\n' && quoted:
			return "", p.fail("quote is not closed")
		case c == '\n':
			return b.String(), nil
		case isSpace(c) && !quoted:
			if b.Len() > 0 {
				spaces++
			}
			continue
		case !quoted && (c == ';' || c == '#'):
			for p.next() != '\n' {
			}
			return b.String(), nil
		}
		for ; spaces > 0; spaces-- {
			b.WriteByte(' ')
		}
		switch c {
		case '\\':
			if err := p.escape(&b); err != nil {
				return "", err
			}
		case '"':
			quoted = !quoted
		default:
			b.WriteByte(c)
		}
	}
}

func (p *parser) escape(b *strings.Builder) error {
	switch c := p.next(); c {
	case '\n':
	case 't':
		b.WriteByte('\t')
	case 'b':
		b.WriteByte('\b')
	case 'n':
		b.WriteByte('\n')
	case '\\', '"':
		b.WriteByte(c)
	default:
		return p.fail(fmt.Sprintf("escape \\%c is unknown", c))
	}
	return nil
}

// isSpace is git's own (ctype.c): no vertical tab, no form feed.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isKeyChar(c byte) bool { return isAlpha(c) || c >= '0' && c <= '9' || c == '-' }

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
