package gitobject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Layout of a pack index, version 2 (gitformat-pack(5)): magic and version, 256 running totals, the sorted names, a CRC
// for each, an offset for each, 64-bit offsets for those that need them, two checksums.
const (
	indexMagic  = 0xff744f63
	indexHeader = 8
	fanout      = indexHeader + 256*4
	largeOffset = 1 << 31 // the other bits number an entry of the 64-bit table
)

var errNotListed = errors.New("not listed")

// index reads one pack index in place: a few dozen bytes are read, however large it is.
type index struct {
	r     io.ReaderAt
	size  int64
	name  int64 // bytes of an object name
	count int64
	s     *search
}

func (s *search) openIndex(r io.ReaderAt, size int64) (*index, error) {
	x := &index{r: r, size: size, name: int64(s.format.size), s: s}
	magic, err := x.uint32(0)
	if err != nil {
		return nil, err
	}
	version, err := x.uint32(4)
	if err != nil {
		return nil, err
	}
	if magic != indexMagic || version != 2 {
		return nil, fmt.Errorf("a pack index of a version other than 2: %w", ErrFormat)
	}
	count, err := x.uint32(fanout - 4)
	if err != nil {
		return nil, err
	}
	x.count = int64(count)
	// The same bounds as git's own load_idx: nothing below is computed from a count that the file cannot hold. With at
	// most 2^32 names of 32 bytes all sums fit 64 bits.
	low := fanout + x.count*(x.name+8) + 2*x.name
	high := low + max(0, x.count-1)*8
	if size < low || size > high {
		return nil, fmt.Errorf("a pack index of %d bytes for %d objects: %w", size, x.count, ErrFormat)
	}
	return x, nil
}

// read fills buf from off, which may come from the file itself.
func (x *index) read(buf []byte, off int64) error {
	if off < 0 || off > x.size-int64(len(buf)) {
		return fmt.Errorf("offset %d in a pack index of %d bytes: %w", off, x.size, ErrFormat)
	}
	if err := x.s.charge(int64(len(buf))); err != nil {
		return err
	}
	if _, err := x.r.ReadAt(buf, off); err != nil {
		return fmt.Errorf("read a pack index at %d: %w", off, err)
	}
	return nil
}

func (x *index) uint32(off int64) (uint32, error) {
	var b [4]byte
	err := x.read(b[:], off)
	return binary.BigEndian.Uint32(b[:]), err
}

// find returns where in the pack the object lies, or errNotListed.
func (x *index) find(id []byte) (int64, error) {
	var low uint32
	var err error
	if id[0] > 0 {
		if low, err = x.uint32(indexHeader + (int64(id[0])-1)*4); err != nil {
			return 0, err
		}
	}
	high, err := x.uint32(indexHeader + int64(id[0])*4)
	if err != nil {
		return 0, err
	}
	if low > high || int64(high) > x.count {
		return 0, fmt.Errorf("a pack index whose totals do not rise: %w", ErrFormat)
	}
	// Names that are out of order make the search miss, never run on.
	name := make([]byte, x.name)
	lo, hi := int64(low), int64(high)
	for lo < hi {
		mid := lo + (hi-lo)/2
		if err := x.read(name, fanout+mid*x.name); err != nil {
			return 0, err
		}
		switch c := bytes.Compare(name, id); {
		case c == 0:
			return x.offset(mid)
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, errNotListed
}

// offset is the place of the n-th name's object in the pack. Whether it makes sense there the pack decides.
func (x *index) offset(n int64) (int64, error) {
	table := fanout + x.count*(x.name+4)
	small, err := x.uint32(table + n*4)
	if err != nil {
		return 0, err
	}
	if small < largeOffset {
		return int64(small), nil
	}
	entry := table + x.count*4 + int64(small-largeOffset)*8
	if entry > x.size-2*x.name-8 {
		return 0, fmt.Errorf("64-bit offset %d is past the table: %w", small-largeOffset, ErrFormat)
	}
	var b [8]byte
	if err := x.read(b[:], entry); err != nil {
		return 0, err
	}
	large := binary.BigEndian.Uint64(b[:])
	if large >= 1<<63 {
		return 0, fmt.Errorf("pack offset %d: %w", large, ErrFormat)
	}
	return int64(large), nil
}
