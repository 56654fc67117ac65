package inject

import (
	"errors"
	"io"
)

// star takes the place of each octet of a credential, so that lengths announced before stay right.
const star = '*'

// Filter puts stars in the place of credentials in a stream. It holds back no more than what could be the beginning of
// one, so an event in a stream of events waits for the next only if it ends like that.
type Filter struct {
	automaton *automaton
	state     int32
	held      []byte // the last octets, as many as the state is deep; found credentials in them are stars already
}

// Append filters src and appends what can be said to dst. The two must not overlap.
func (f *Filter) Append(dst, src []byte) []byte {
	start := len(dst)
	dst = append(append(dst, f.held...), src...)
	a, state := f.automaton, f.state
	for i := start + len(f.held); i < len(dst); i++ {
		if state = a.step(state, dst[i]); state == 0 {
			continue
		}
		if n := int(a.nodes[state].found); n > 0 {
			stars(dst[i+1-n : i+1])
		}
	}
	f.state = state
	end := len(dst) - int(a.nodes[state].depth)
	f.held = append(f.held[:0], dst[end:]...)
	return dst[:end]
}

// stars cannot disturb the search: the automaton has read these octets, and remembers what they were.
func stars(b []byte) {
	for i := range b {
		b[i] = star
	}
}

// Flush appends what was held back. The stream has ended; the filter can be used for another.
func (f *Filter) Flush(dst []byte) []byte {
	dst = append(dst, f.held...)
	f.held, f.state = f.held[:0], 0
	return dst
}

// reader is a Filter that is pulled.
type reader struct {
	from   io.Reader
	filter Filter
	in     []byte
	out    []byte // filtered, not read yet
	err    error  // of from
}

// readSize is one record of TLS (RFC 8446 section 5.1).
const readSize = 16 << 10

// errNoProgress ends a reader that gives nothing and no error for ever.
var errNoProgress = errors.New("the body gives no octets and no error")

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for idle := 0; len(r.out) == 0; idle++ {
		if r.err != nil {
			return 0, r.err
		}
		if idle > 100+maxPattern {
			return 0, errNoProgress
		}
		r.fill()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *reader) fill() {
	if r.in == nil {
		r.in = make([]byte, readSize)
	}
	n, err := r.from.Read(r.in)
	r.out = r.filter.Append(r.out[:0], r.in[:n])
	if err != nil {
		r.err = err
		r.out = r.filter.Flush(r.out)
	}
}
