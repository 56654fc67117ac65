package gitobject

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"coworker/platform/workfs"
)

// Entry types of a pack (gitformat-pack(5)). Commits, trees and tags are of no interest here.
const (
	typeBlob     = 3
	typeOfsDelta = 6
	typeRefDelta = 7
)

const (
	packHeader = 12
	// maxChain is above git's pack.depth, 50 by default also for gc --aggressive.
	maxChain = 64
	// maxEntryHead is more than type and size (10 bytes) and a base name (32) or distance (10) take.
	maxEntryHead = 64
)

// packed asks every pack. One that cannot be read does not end the search, it only spoils a "no".
func (s *search) packed(ctx context.Context, root *workfs.Root, dir string) (bool, error) {
	names, err := root.ReadDir(dir, maxNames)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var spoiled error
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		held, err := s.inPack(root, workfs.Join(dir, base))
		if held {
			return true, nil
		}
		if err != nil && spoiled == nil { // one is enough to know, thousands would only be long
			spoiled = fmt.Errorf("pack %q: %w", workfs.Join(dir, base), err)
		}
		if errors.Is(err, ErrWork) && s.left == 0 {
			break
		}
	}
	return false, spoiled
}

func (s *search) inPack(root *workfs.Root, base string) (bool, error) {
	idx, info, err := root.Open(base + ".idx")
	if err != nil {
		return false, err
	}
	defer idx.Close()
	x, err := s.openIndex(idx, info.Size)
	if err != nil {
		return false, err
	}
	at, err := x.find(s.id)
	if errors.Is(err, errNotListed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, info, err := root.Open(base + ".pack")
	if errors.Is(err, fs.ErrNotExist) { // git ignores such an index too
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	p, err := s.openPack(f, info.Size, x)
	if err != nil {
		return false, err
	}
	return p.holds(at)
}

// pack reads single entries of a pack.
type pack struct {
	r     io.ReaderAt
	end   int64 // where the checksum begins
	index *index
	s     *search
}

func (s *search) openPack(r io.ReaderAt, size int64, x *index) (*pack, error) {
	p := &pack{r: r, end: size - int64(s.format.size), index: x, s: s}
	var head [8]byte
	if p.end < packHeader {
		return nil, fmt.Errorf("a pack of %d bytes: %w", size, ErrFormat)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read the head of a pack: %w", err)
	}
	version := binary.BigEndian.Uint32(head[4:])
	if string(head[:4]) != "PACK" || version != 2 && version != 3 {
		return nil, fmt.Errorf("a pack that begins with %x: %w", head, ErrFormat)
	}
	return p, nil
}

// entry is the head of one object in a pack.
type entry struct {
	kind int
	size int64 // inflated; of the delta, where it is one
	base int64 // offset of the base of a delta
	data int64 // offset of the zlib stream
}

func (p *pack) entry(at int64) (entry, error) {
	if at < packHeader || at >= p.end {
		return entry{}, fmt.Errorf("offset %d in a pack that ends at %d: %w", at, p.end, ErrFormat)
	}
	buf := make([]byte, min(maxEntryHead, p.end-at))
	if err := p.s.charge(int64(len(buf))); err != nil {
		return entry{}, err
	}
	if _, err := p.r.ReadAt(buf, at); err != nil {
		return entry{}, fmt.Errorf("read a pack at %d: %w", at, err)
	}
	h := head{buf: buf}
	e := entry{}
	e.kind, e.size = h.typeAndSize()
	switch e.kind {
	case typeOfsDelta:
		e.base = at - h.distance() // smaller than at, so chains of these end
	case typeRefDelta:
		name := h.bytes(p.s.format.size)
		if h.bad {
			break
		}
		var err error
		if e.base, err = p.index.find(name); err != nil {
			// Packs on disk are never thin: the base is in the same pack (git-index-pack(1), --fix-thin).
			return entry{}, fmt.Errorf("base %x of a delta at %d: %w", name, at, err)
		}
	}
	if h.bad {
		return entry{}, fmt.Errorf("head of the object at %d in a pack: %w", at, ErrFormat)
	}
	e.data = at + int64(h.pos)
	return e, nil
}

func (p *pack) stream(e entry) io.Reader { return io.NewSectionReader(p.r, e.data, p.end-e.data) }

// holds reports whether the object at an offset is a blob with the content.
func (p *pack) holds(at int64) (bool, error) {
	e, err := p.entry(at)
	if err != nil {
		return false, err
	}
	if e.kind == typeBlob {
		if e.size != int64(len(p.s.content)) {
			return false, nil
		}
		return p.s.matches(p.stream(e), p.s.content)
	}
	chain, base, err := p.chain(e)
	if err != nil || base.kind != typeBlob {
		return false, err
	}
	made, err := p.s.inflate(p.stream(base), base.size)
	if err != nil {
		return false, err
	}
	for _, e := range slices.Backward(chain) {
		delta, err := p.s.inflate(p.stream(e), e.size)
		if err != nil {
			return false, err
		}
		if made, err = p.s.apply(made, delta); err != nil {
			return false, err
		}
	}
	return bytes.Equal(made, p.s.content), nil
}

// chain follows a delta to the object that is none. The deltas come in the order in which they were met.
func (p *pack) chain(e entry) (deltas []entry, base entry, err error) {
	for e.kind == typeOfsDelta || e.kind == typeRefDelta {
		if len(deltas) == maxChain {
			return nil, entry{}, fmt.Errorf("a delta chain of more than %d: %w", maxChain, ErrWork)
		}
		deltas = append(deltas, e)
		if e, err = p.entry(e.base); err != nil {
			return nil, entry{}, err
		}
	}
	return deltas, e, nil
}
