package cli

import (
	"io"
	"slices"
	"strings"
)

// sign is something that a command tells about a wall that it met. Signs make hints, never decisions.
type sign int

const (
	readOnly  sign = iota // EROFS
	noNetwork             // no route, or no name server
)

// signTexts are how libc, Go, Node, Python and curl spell them.
var signTexts = map[sign][]string{
	readOnly: {"ead-only file system", "EROFS"},
	noNetwork: {
		"etwork is unreachable", "ENETUNREACH", "emporary failure in name resolution", "Could not resolve host", "EAI_AGAIN", "ENOTFOUND",
		"Name or service not known", "no such host", "dial udp: lookup", "dial tcp: lookup",
	},
}

// textWatch passes text on and notices signs in it.
type textWatch struct {
	w    io.Writer
	look []sign // what was not seen yet
	seen []sign
	tail string // the end of what came before: a text may come in two pieces
}

func (t *textWatch) met(s sign) bool { return slices.Contains(t.seen, s) }

func (t *textWatch) Write(p []byte) (int, error) {
	if len(t.look) > 0 {
		text := t.tail + string(p)
		t.look = slices.DeleteFunc(t.look, func(s sign) bool {
			found := slices.ContainsFunc(signTexts[s], func(part string) bool { return strings.Contains(text, part) })
			if found {
				t.seen = append(t.seen, s)
			}
			return found
		})
		const longest = 40
		t.tail = text[max(0, len(text)-longest):]
	}
	return t.w.Write(p)
}
