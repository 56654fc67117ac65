package session

import (
	"bytes"
	"io"
)

// ClipboardFilter takes the sequences out of what a command writes to a terminal that set or read
// the clipboard of the person, which is outside the wall: OSC 52 (xterm control sequences,
// "Manipulate Selection Data"), OSC 5522 (kitty's successor of it) and OSC 1337;Copy (iTerm2).
// Everything else passes unchanged, and a sequence may come in any number of pieces.
type ClipboardFilter struct {
	w       io.Writer
	pending []byte // what may still become one of the sequences
	drop    bool   // inside a sequence that is taken out
	last    byte   // inside one: the byte before, if it may begin the end
}

// NewClipboardFilter makes a filter in front of w.
func NewClipboardFilter(w io.Writer) *ClipboardFilter { return &ClipboardFilter{w: w} }

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
	// The first byte of a C1 control in UTF-8. A raw C1 byte is none in a UTF-8 terminal, and is part
	// of other characters there.
	c1 = 0xc2
)

// What follows the introducer and the leading zeros of the number.
var clipboardCommands = [][]byte{[]byte("52;"), []byte("5522;"), []byte("1337;Copy")}

// maxPending bounds what is held back. Nobody writes that many zeros and control characters into an
// introducer but to hide it; such a sequence loses the byte that makes it one.
const maxPending = 256

// Write passes p on without the sequences. It reports len(p) when all of it was handled.
func (f *ClipboardFilter) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(f.pending)+len(p))
	for _, b := range p {
		out = f.step(out, b)
	}
	if len(out) > 0 {
		if _, err := f.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// step handles one byte.
func (f *ClipboardFilter) step(out []byte, b byte) []byte {
	if f.drop {
		return f.skip(out, b)
	}
	f.pending = append(f.pending, b)
	switch match(f.pending) {
	case partial:
		if len(f.pending) < maxPending {
			return out
		}
		out = append(out, f.pending[1:]...)
		f.pending = f.pending[:0]
		return out
	case whole:
		f.pending, f.drop, f.last = f.pending[:0], true, 0
		return out
	}
	// Not one: pass the first byte, look at the rest again.
	rest := bytes.Clone(f.pending[1:])
	out = append(out, f.pending[0])
	f.pending = f.pending[:0]
	for _, r := range rest {
		out = f.step(out, r)
	}
	return out
}

// skip looks for the end of a sequence: BEL or ST (ESC \ or its C1 form) end it, CAN and SUB abort
// it, and so does ESC as the beginning of another sequence (ECMA-48).
func (f *ClipboardFilter) skip(out []byte, b byte) []byte {
	last := f.last
	f.last = 0
	switch {
	case b == bel, b == can, b == sub, last == esc && b == '\\', last == c1 && b == 0x9c:
		f.drop = false
	case last == esc:
		f.drop = false
		return f.step(f.step(out, esc), b)
	case b == esc, b == c1:
		f.last = b
	}
	return out
}

type matched int

const (
	none matched = iota
	partial
	whole
)

// match compares bytes with "OSC 0* COMMAND". Terminals carry out control characters in the middle of
// an escape sequence and go on with it, and many ignore them in the middle of a string (the parser of
// the VT500 series, https://vt100.net/emu/dec_ansi_parser), so they are passed over here.
func match(p []byte) matched {
	rest, state := introducer(p)
	if state != whole {
		return state
	}
	var text []byte
	for _, b := range rest {
		switch {
		case b == bel, b == can, b == sub, b == esc:
			return none
		case b < ' ', b == '0' && len(text) == 0:
		default:
			text = append(text, b)
		}
	}
	state = none
	for _, c := range clipboardCommands {
		switch {
		case bytes.HasPrefix(text, c):
			return whole
		case bytes.HasPrefix(c, text):
			state = partial
		}
	}
	return state
}

// introducer looks for OSC, as ESC ] or as C1 control, and returns what follows it.
func introducer(p []byte) ([]byte, matched) {
	switch p[0] {
	case c1:
		if len(p) == 1 {
			return nil, partial
		}
		if p[1] == 0x9d {
			return p[2:], whole
		}
	case esc:
		for i, b := range p[1:] {
			switch {
			case b == ']':
				return p[i+2:], whole
			case b == can, b == sub, b == esc, b >= ' ' && b != del:
				return nil, none
			}
		}
		return nil, partial
	}
	return nil, none
}
