package gitobject

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"
)

// FuzzIndex: whatever the bytes, a listed object's offset is one that the file holds.
func FuzzIndex(f *testing.F) {
	id := make([]byte, 20)
	empty := append([]byte("\xfftOc\x00\x00\x00\x02"), make([]byte, 1024+40)...)
	f.Add(empty, id)
	one := append([]byte("\xfftOc\x00\x00\x00\x02"), bytes.Repeat([]byte{0, 0, 0, 1}, 256)...)
	one = append(one, id...)
	f.Add(append(append(one, 0, 0, 0, 0, 0x80, 0, 0, 0), make([]byte, 48)...), id)
	f.Fuzz(func(t *testing.T, data, id []byte) {
		if len(id) != formatSHA1.size {
			return
		}
		s := newSearch(formatSHA1, nil)
		x, err := s.openIndex(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		at, err := x.find(id)
		if err != nil {
			return
		}
		if !bytes.Contains(data, id) {
			t.Errorf("found %x, which is not in the file", id)
		}
		small := binary.BigEndian.AppendUint32(nil, uint32(at))
		large := binary.BigEndian.AppendUint64(nil, uint64(at))
		if at < 0 || !bytes.Contains(data, small) && !bytes.Contains(data, large) {
			t.Errorf("offset %d is not in the file", at)
		}
	})
}

// FuzzPack: a yes for a content that the pack holds in no form (not inflated from any byte of it, no deltas) is a lie.
func FuzzPack(f *testing.F) {
	content := []byte("PIN=4711\n")
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(content)
	w.Close()
	pack := append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x39"), z.Bytes()...)
	f.Add(append(pack, make([]byte, 20)...), int64(12), content)
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x64\x01\x78\x9c\x00\x00"), int64(12), content)
	f.Fuzz(func(t *testing.T, data []byte, at int64, content []byte) {
		if len(content) > MaxContent {
			return
		}
		s := newSearch(formatSHA1, content)
		x := &index{r: bytes.NewReader(nil), name: 20, s: s}
		p, err := s.openPack(bytes.NewReader(data), int64(len(data)), x)
		if err != nil {
			return
		}
		held, err := p.holds(at)
		if held && err != nil {
			t.Errorf("held, and %v", err)
		}
		if held && !resolves(data, content) {
			t.Errorf("offset %d of %x is said to hold %q", at, data, content)
		}
	})
}

// resolves is a slower, coarser reader: does a stream anywhere in data inflate to content, or is there a delta type at all?
func resolves(data, content []byte) bool {
	for i := packHeader; i < len(data); i++ {
		if kind := data[i] >> 4 & 7; kind == typeOfsDelta {
			return true
		}
		z, err := zlib.NewReader(bytes.NewReader(data[i:]))
		if err != nil {
			continue
		}
		made := make([]byte, len(content)+1)
		n := 0
		for n < len(made) {
			m, err := z.Read(made[n:])
			if n += m; err != nil {
				break
			}
		}
		if bytes.Equal(made[:n], content) {
			return true
		}
	}
	return false
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("base base"), []byte{9, 9, 0x90, 9})
	f.Add([]byte("base base"), []byte{9, 12, 0x90, 9, 3, 'a', 'b', 'c'})
	f.Add([]byte(""), []byte{0, 0})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		s := newSearch(formatSHA1, nil)
		made, err := s.apply(base, delta)
		if err != nil {
			return
		}
		h := head{buf: delta}
		if from, to := h.number(0), h.number(0); int(from) != len(base) || int(to) != len(made) {
			t.Errorf("a delta from %d to %d made %d bytes of %d", from, to, len(made), len(base))
		}
	})
}
