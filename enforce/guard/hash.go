package guard

import (
	"encoding/binary"
	"sync"

	"coworker/enforce/protect"
)

// hasher makes the hash of a name, as hash_name of the programs does. The numbers are secret: who knew them could look
// for a name that counts as one that a person lifted.
type hasher struct{ seed, factor uint64 }

func (h hasher) hash(signs []uint64) uint64 {
	sum := h.seed
	for _, s := range signs {
		sum = (sum ^ s) * h.factor
		sum ^= sum >> 29
	}
	return sum
}

// Signs above those of ASCII: a character that stays as it is, and bytes that are not UTF-8.
const (
	character = 0x1000000
	notUTF8   = 0x2000000
)

// head is how many bytes of a name are read in full; of a longer one the programs know length and end besides.
const head = 32

// signs is what the programs compare of a name; nil if they refuse to say, and then to change what has the name. Two
// names have the same ones if protect.Fold makes the same ASCII name of both; other names may differ here although Fold
// makes one of them, because the programs have no table of all characters. A name of more than 32 bytes counts as its
// head if that ends in dots and spaces: as one that is protected rather than as one that is not.
func signs(name string) []uint64 {
	var d decoder
	for i := range min(len(name), head) {
		if d.byte(name[i]) {
			return d.trimmed()
		}
	}
	if len(name) > head {
		if d.dropped && !d.foreign {
			return nil
		}
		if d.kept == len(d.signs) || d.more > 0 {
			return append(d.signs, 0x4000000|uint64(len(name)), binary.LittleEndian.Uint64([]byte(name[len(name)-8:])))
		}
	}
	if d.more > 0 {
		d.add(notUTF8)
	}
	return d.trimmed()
}

// decoder follows hash_name step by step.
type decoder struct {
	signs []uint64
	kept  int // up to the last sign that is not trimmed
	rune  uint32
	more  int // bytes that are to come of this character

	dropped, foreign bool // characters that were left out, that stay what they are
}

func (d *decoder) trimmed() []uint64 {
	if d.kept > 0 {
		return d.signs[:d.kept]
	}
	return d.signs
}

func (d *decoder) add(s uint64) {
	d.signs = append(d.signs, s)
	d.kept = len(d.signs)
}

// byte takes the next byte and says whether the rest of the name does not count.
func (d *decoder) byte(c byte) (end bool) {
	if d.more > 0 {
		if c&0xc0 == 0x80 {
			d.rune = d.rune<<6 | uint32(c&0x3f)
			if d.more--; d.more == 0 {
				d.character()
			}
			return false
		}
		d.more = 0
		d.add(notUTF8)
	}
	switch {
	case c >= 0xf0:
		d.more, d.rune = 3, uint32(c&7)
	case c >= 0xe0:
		d.more, d.rune = 2, uint32(c&15)
	case c >= 0xc2:
		d.more, d.rune = 1, uint32(c&31)
	case c >= 0x80:
		d.add(notUTF8 | uint64(c))
	case c == ':' && len(d.signs) > 0:
		return true
	case c == '.' || c == ' ':
		d.signs = append(d.signs, uint64(c))
	case c >= 'A' && c <= 'Z':
		d.add(uint64(c + 32))
	default:
		d.add(uint64(c))
	}
	return false
}

func (d *decoder) character() {
	to, listed := packedFolds()[d.rune]
	if d.rune >= 0xe0000 && d.rune <= 0xe0fff || listed && to == 0 {
		d.dropped = true
		return
	}
	if !listed {
		d.foreign = true
		d.add(character | uint64(d.rune))
		return
	}
	for ; to != 0; to >>= 8 {
		d.add(uint64(to & 0xff))
	}
}

// packedFolds gives, for each character that is not ASCII and becomes ASCII, what it becomes: up to three characters,
// the first in the lowest byte; 0 is nothing.
var packedFolds = sync.OnceValue(func() map[uint32]uint32 {
	packed := map[uint32]uint32{}
	for r, to := range protect.Folds() {
		v := uint32(0)
		for i := range len(to) {
			v |= uint32(to[i]) << (8 * i)
		}
		packed[uint32(r)] = v
	}
	return packed
})

// key makes a map key of signs.
func key(signs []uint64) string {
	b := make([]byte, 0, 8*len(signs))
	for _, s := range signs {
		b = binary.LittleEndian.AppendUint64(b, s)
	}
	return string(b)
}
