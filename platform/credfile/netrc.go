package credfile

import (
	"strings"

	"coworker/platform/secret"
)

// ParseNetrc reads a .netrc (ftp(1); quotes and backslashes as Python's netrc module and curl read them). The entry
// "default" is skipped: it is for every host.
func ParseNetrc(data []byte) (Result, error) {
	var out Result
	if err := checkSize(data); err != nil {
		return out, err
	}
	s := &netrcScanner{text: string(data), line: 1}
	var at *machine
	for {
		word, ok := s.next()
		if !ok {
			break
		}
		switch word {
		case "machine", "default":
			out.machine(at)
			at = &machine{line: s.line, all: word == "default"}
			if !at.all {
				at.host = s.value()
			}
		case "login", "user", "password", "account":
			at.set(word, s.value())
		case "macdef":
			s.skipMacro()
		}
	}
	out.machine(at)
	return out, nil
}

type machine struct {
	host, user, password string
	line                 int
	all                  bool
}

func (m *machine) set(word, value string) {
	switch {
	case m == nil || word == "account":
	case word == "password":
		m.password = value
	default:
		m.user = value
	}
}

func (r *Result) machine(m *machine) {
	switch {
	case m == nil || m.password == "":
	case m.all:
		r.skip(m.line, "", `"default" is for every host`)
	default:
		r.take(Credential{Host: m.host, User: m.user, Value: secret.NewValue(m.password), Scheme: secret.Basic, Line: m.line})
	}
}

// netrcScanner yields words.
type netrcScanner struct {
	text string
	pos  int
	line int
}

// next is the next word where a keyword may stand; a comment may stand there too.
func (s *netrcScanner) next() (string, bool) {
	s.skipSpace(true)
	if s.pos == len(s.text) {
		return "", false
	}
	return s.word(), true
}

// value is the word after a keyword. A password may begin with "#".
func (s *netrcScanner) value() string {
	s.skipSpace(false)
	return s.word()
}

func (s *netrcScanner) word() string {
	if s.pos == len(s.text) {
		return ""
	}
	var word strings.Builder
	quoted := s.text[s.pos] == '"'
	if quoted {
		s.pos++
	}
	for ; s.pos < len(s.text); s.pos++ {
		c := s.text[s.pos]
		if quoted && c == '"' {
			s.pos++
			break
		}
		if !quoted && isSpace(c) {
			break
		}
		if c == '\\' && s.pos+1 < len(s.text) {
			s.pos++
			c = s.text[s.pos]
		}
		if c == '\n' {
			s.line++
		}
		word.WriteByte(c)
	}
	return word.String()
}

// skipSpace passes over white space, and comments where they may stand.
func (s *netrcScanner) skipSpace(comments bool) {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '#' && comments:
			end := strings.IndexByte(s.text[s.pos:], '\n')
			if end < 0 {
				end = len(s.text) - s.pos
			}
			s.pos += end
		case c == '\n':
			s.line++
			s.pos++
		case isSpace(c):
			s.pos++
		default:
			return
		}
	}
}

// skipMacro passes over a macro, which ends at an empty line.
func (s *netrcScanner) skipMacro() {
	rest := s.text[s.pos:]
	end := strings.Index(strings.ReplaceAll(rest, "\r", " "), "\n\n")
	if end < 0 {
		end = len(rest)
	}
	s.line += strings.Count(rest[:end], "\n")
	s.pos += end
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
