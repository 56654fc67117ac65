package session

import (
	"bytes"
	"io"
)

// ClipboardFilter takes OSC 52 sequences out of what a command writes to a terminal: they set
// (and in some terminals read) the clipboard of the person, which is outside the wall (xterm
// control sequences, "Manipulate Selection Data"). Everything else passes unchanged, and a
// sequence may come in any number of pieces.
type ClipboardFilter struct {
	w       io.Writer
	pending []byte // an OSC introducer whose number is not complete
	drop    bool   // inside an OSC 52
	escape  bool   // inside an OSC 52, after ESC
}

// NewClipboardFilter makes a filter in front of w.
func NewClipboardFilter(w io.Writer) *ClipboardFilter { return &ClipboardFilter{w: w} }

// The two spellings of the introducer: ESC ] and the C1 control as UTF-8. Raw 0x9d is not one in
// a UTF-8 terminal, and is part of other characters there.
var introducers = [][]byte{[]byte("\x1b]"), []byte("\xc2\x9d")}

const clipboardNumber = "52"

// Write passes p on without OSC 52. It reports len(p) when all of it was handled.
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
		// BEL, ST (ESC \) or its C1 form end the sequence; CAN and SUB abort it (ECMA-48).
		if b == 0x07 || b == 0x18 || b == 0x1a || f.escape {
			f.drop, f.escape = false, false
			if b != 0x07 && b != 0x18 && b != 0x1a && b != '\\' {
				return f.step(append(out, 0x1b), b) // ESC of another sequence ended the string
			}
			return out
		}
		f.escape = b == 0x1b
		return out
	}
	f.pending = append(f.pending, b)
	switch match(f.pending) {
	case partial:
		return out
	case whole:
		f.pending, f.drop = f.pending[:0], true
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

type matched int

const (
	none matched = iota
	partial
	whole
)

// match compares bytes with "OSC 0*52 ;". Leading zeros make the same number.
func match(p []byte) matched {
	for _, intro := range introducers {
		if len(p) < len(intro) {
			if bytes.HasPrefix(intro, p) {
				return partial
			}
			continue
		}
		if !bytes.HasPrefix(p, intro) {
			continue
		}
		digits := bytes.TrimLeft(p[len(intro):], "0")
		switch {
		case len(p) > 64:
			return none
		case len(digits) <= len(clipboardNumber):
			if bytes.HasPrefix([]byte(clipboardNumber), digits) {
				return partial
			}
			return none
		case bytes.HasPrefix(digits, []byte(clipboardNumber+";")):
			return whole
		}
		return none
	}
	return none
}
