package gitobject

import "fmt"

// head decodes the numbers in front of packed data. The first bad or missing byte makes everything after it bad.
type head struct {
	buf []byte
	pos int
	bad bool
}

func (h *head) next() byte {
	if h.pos >= len(h.buf) {
		h.bad = true
		return 0
	}
	h.pos++
	return h.buf[h.pos-1]
}

func (h *head) bytes(n int) []byte {
	if n > len(h.buf)-h.pos {
		h.bad = true
		return nil
	}
	h.pos += n
	return h.buf[h.pos-n : h.pos]
}

// typeAndSize reads three bits of type, then a size, four bits and then seven at a time, low ones first.
func (h *head) typeAndSize() (int, int64) {
	c := h.next()
	kind, size := int(c>>4&7), int64(c&15)
	if c&0x80 != 0 {
		size |= h.number(4)
	}
	return kind, size
}

// number reads seven bits at a time, low ones first, and puts them at shift and above.
func (h *head) number(shift uint) int64 {
	var n int64
	for {
		c := h.next()
		if shift > 55 { // 62 bits at most: no object is larger, and nothing overflows
			h.bad = true
		}
		if h.bad {
			return 0
		}
		n |= int64(c&0x7f) << shift
		shift += 7
		if c&0x80 == 0 {
			return n
		}
	}
}

// distance reads how far back the base of a delta is: seven bits at a time, high ones first, each but the last plus one,
// so that there is one way to write a number. Zero would make an object its own base.
func (h *head) distance() int64 {
	c := h.next()
	n := int64(c & 0x7f)
	for c&0x80 != 0 && !h.bad {
		c = h.next()
		if n >= 1<<54 {
			h.bad = true
		}
		n = (n+1)<<7 | int64(c&0x7f)
	}
	if n == 0 {
		h.bad = true
	}
	return n
}

// apply makes an object from its base and a delta: two sizes, then instructions to copy from the base or to insert what
// follows (gitformat-pack(5), "Deltified representation").
func (s *search) apply(base, delta []byte) ([]byte, error) {
	h := head{buf: delta}
	from, to := h.number(0), h.number(0)
	if h.bad || from != int64(len(base)) {
		return nil, fmt.Errorf("a delta for a base of %d bytes, not %d: %w", from, len(base), ErrFormat)
	}
	if to > MaxContent {
		return nil, fmt.Errorf("an object of %d bytes in a delta chain: %w", to, ErrWork)
	}
	if err := s.charge(to); err != nil {
		return nil, err
	}
	out := make([]byte, 0, to)
	for h.pos < len(delta) {
		piece := h.piece(base)
		if h.bad || len(piece) > int(to)-len(out) {
			return nil, fmt.Errorf("a delta instruction before byte %d: %w", h.pos, ErrFormat)
		}
		out = append(out, piece...)
	}
	if len(out) != int(to) {
		return nil, fmt.Errorf("a delta that makes %d bytes of %d: %w", len(out), to, ErrFormat)
	}
	return out, nil
}

// piece reads one instruction. Zero is reserved.
func (h *head) piece(base []byte) []byte {
	op := h.next()
	if op == 0 {
		h.bad = true
		return nil
	}
	if op&0x80 == 0 {
		return h.bytes(int(op))
	}
	var offset, size int64
	for bit := range 4 {
		if op&(1<<bit) != 0 {
			offset |= int64(h.next()) << (8 * bit)
		}
	}
	for bit := range 3 {
		if op&(0x10<<bit) != 0 {
			size |= int64(h.next()) << (8 * bit)
		}
	}
	if size == 0 {
		size = 0x10000
	}
	if h.bad || offset > int64(len(base))-size {
		h.bad = true
		return nil
	}
	return base[offset : offset+size]
}
