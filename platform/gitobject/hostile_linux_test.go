package gitobject

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"coworker/platform/workfs"
)

func blobID(content string) []byte {
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))
	return sum[:]
}

func deflate(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write(data)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// item is an entry of an index.
type item struct {
	id []byte
	at uint64
}

// makeIndex writes a version 2 index, by the format's description and not by the reader's code.
func makeIndex(items []item) []byte {
	slices.SortFunc(items, func(a, b item) int { return bytes.Compare(a.id, b.id) })
	out := []byte("\xfftOc\x00\x00\x00\x02")
	for i := range 256 {
		n := 0
		for _, it := range items {
			if int(it.id[0]) <= i {
				n++
			}
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	for _, it := range items {
		out = append(out, it.id...)
	}
	out = append(out, make([]byte, 4*len(items))...)
	var large []byte
	for _, it := range items {
		if it.at < 1<<31 {
			out = binary.BigEndian.AppendUint32(out, uint32(it.at))
			continue
		}
		out = binary.BigEndian.AppendUint32(out, uint32(1<<31|len(large)/8))
		large = binary.BigEndian.AppendUint64(large, it.at)
	}
	return append(append(out, large...), make([]byte, 2*sha1.Size)...)
}

// plant puts a pack and an index into a new repository.
func plant(t *testing.T, idx, pack []byte) repo {
	t.Helper()
	r := newRepo(t)
	base := filepath.Join(r.dir, ".git/objects/pack/pack-x")
	for name, data := range map[string][]byte{".idx": idx, ".pack": pack} {
		if err := os.WriteFile(base+name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func makePack(entries ...[]byte) []byte {
	out := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01")
	out = append(out, bytes.Join(entries, nil)...)
	return append(out, make([]byte, sha1.Size)...)
}

func packed(t testing.TB, kind byte, size int, before, data []byte) []byte {
	c, n := kind<<4|byte(size&15), size>>4
	var out []byte
	for ; n > 0; n >>= 7 {
		out = append(out, c|0x80)
		c = byte(n & 0x7f)
	}
	out = append(append(out, c), before...)
	return append(out, deflate(t, data)...)
}

const secret = "PIN=4711\n"

// The attacker knows (or guesses) the name of the secret's blob and plants it without the content.
func TestPlantedNames(t *testing.T) {
	id := blobID(secret)
	listed := makeIndex([]item{{id, 12}})
	other := []byte("PIN=4712\n")
	loop := packed(t, typeRefDelta, 4, id, []byte{9, 9, 0x90, 9})
	tests := []struct {
		name   string
		idx    []byte
		pack   []byte
		reason error // nil: a plain no
	}{
		{"empty pack", listed, nil, ErrFormat},
		{"pack without objects", listed, makePack(), ErrFormat},
		{"other content of the same length", listed, makePack(packed(t, typeBlob, len(other), nil, other)), nil},
		{"other length", listed, makePack(packed(t, typeBlob, 3, nil, []byte("abc"))), nil},
		{"right length announced, shorter", listed, makePack(packed(t, typeBlob, len(secret), nil, []byte(secret[:4]))), ErrFormat},
		{"longer than announced", listed, makePack(packed(t, typeBlob, len(secret), nil, []byte(secret+"x"))), nil},
		{"a tree with the bytes", listed, makePack(packed(t, 2, len(secret), nil, []byte(secret))), nil},
		{"type 0", listed, makePack(packed(t, 0, len(secret), nil, []byte(secret))), nil},
		{"type 5", listed, makePack(packed(t, 5, len(secret), nil, []byte(secret))), nil},
		{"no zlib stream", listed, makePack([]byte{typeBlob<<4 | byte(len(secret))}, []byte(secret)), ErrFormat},
		{"a delta on itself by name", listed, makePack(loop), ErrWork},
		{"a delta on itself by distance", listed, makePack(packed(t, typeOfsDelta, 4, []byte{0}, []byte{9, 9, 0x90, 9})), ErrFormat},
		{"a base before the pack", listed, makePack(packed(t, typeOfsDelta, 4, []byte{100}, []byte{9, 9, 0x90, 9})), ErrFormat},
		{"a base that is not listed", listed, makePack(packed(t, typeRefDelta, 4, make([]byte, 20), []byte{9, 9, 0x90, 9})), errNotListed},
		{"a size over 2^62", listed, makePack(append(bytes.Repeat([]byte{0xff}, 12), 0)), ErrFormat},
		{"a delta of 1 GiB", listed, makePack(packed(t, typeOfsDelta, 1<<30, []byte{1}, nil)), ErrFormat},
		{"offset into the header", makeIndex([]item{{id, 3}}), makePack(packed(t, typeBlob, len(secret), nil, []byte(secret))), ErrFormat},
		{"offset past the end", makeIndex([]item{{id, 1 << 40}}), makePack(), ErrFormat},
		{"negative offset", makeIndex([]item{{id, 1<<64 - 1}}), makePack(), ErrFormat},
		{"empty index", nil, makePack(), ErrFormat},
		{"short index", listed[:1040], makePack(), ErrFormat},
		{"index with a tail", append(slices.Clone(listed), 0), makePack(), ErrFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := plant(t, tt.idx, tt.pack)
			if tt.reason == nil {
				r.want(false, secret)
			} else {
				r.refused(tt.reason, secret)
			}
		})
	}
	// The same means with the content in it give a yes, so the table above tests what it says.
	plant(t, listed, makePack(packed(t, typeBlob, len(secret), nil, []byte(secret)))).want(true, secret)
	base := packed(t, typeBlob, len(other), nil, other)
	delta := packed(t, typeOfsDelta, 12, []byte{byte(len(base))}, append([]byte{9, 9, 9}, secret...))
	plant(t, makeIndex([]item{{id, uint64(12 + len(base))}}), makePack(base, delta)).want(true, secret)
	tree := packed(t, 2, len(other), nil, other)
	delta = packed(t, typeOfsDelta, 12, []byte{byte(len(tree))}, append([]byte{9, 9, 9}, secret...))
	plant(t, makeIndex([]item{{id, uint64(12 + len(tree))}}), makePack(tree, delta)).want(false, secret)
}

func TestPlantedLooseObjects(t *testing.T) {
	id := hex.EncodeToString(blobID(secret))
	object := func(text string) []byte { return deflate(t, []byte(text)) }
	empty := append([]byte{0x78, 0x9c}, bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, maxWork/5+1000)...)
	whole := "blob 9\x00" + secret
	tests := []struct {
		name   string
		file   []byte
		held   bool
		reason error
	}{
		{"the object", object(whole), true, nil},
		{"empty file", nil, false, ErrFormat},
		{"plain bytes", []byte(whole), false, ErrFormat},
		{"without a header", object(secret), false, nil},
		{"other type", object("tree 9\x00" + secret), false, nil},
		{"other content", object("blob 9\x00PIN=4712\n"), false, nil},
		{"longer", object(whole + "x"), false, nil},
		{"shorter", object(whole[:12]), false, ErrFormat},
		{"cut", object(whole)[:15], false, ErrFormat},
		{"wrong checksum", append(object(whole)[:len(object(whole))-1], 'x'), false, ErrFormat},
		{"nothing for ever", empty, false, ErrWork},
		{"a bomb", object(string(make([]byte, 64<<20))), false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRepo(t)
			dir := filepath.Join(r.dir, ".git/objects", id[:2])
			os.Mkdir(dir, 0o700)
			if err := os.WriteFile(filepath.Join(dir, id[2:]), tt.file, 0o600); err != nil {
				t.Fatal(err)
			}
			held, err := r.ask(".git", secret)
			if held != tt.held || !errors.Is(err, tt.reason) {
				t.Errorf("Holds = %v, %v; want %v, %v", held, err, tt.held, tt.reason)
			}
		})
	}
}

// A broken object or pack must not hide a sound one elsewhere.
func TestBrokenBesideSound(t *testing.T) {
	r := plant(t, []byte("broken"), []byte("broken"))
	r.refused(ErrFormat, secret)
	r.commit("f", secret)
	r.want(true, secret)
	r.git("repack", "-q", "-d", "-f")
	r.want(true, secret)
	r.refused(ErrFormat, "something else")
}

func TestConfig(t *testing.T) {
	for config, reason := range map[string]error{
		"[extensions]\nobjectFormat = sha256\n[extensions]\nobjectFormat = sha1\n": nil,
		"[extensions]\nobjectFormat = md5\n":                                       ErrFormat,
		"[extensions]\nobjectFormat\n":                                             ErrFormat,
	} {
		r := newRepo(t)
		r.commit("f", secret)
		r.write(".git/config", config)
		held, err := r.ask(".git", secret)
		if held != (reason == nil) || !errors.Is(err, reason) {
			t.Errorf("%q: Holds = %v, %v; want %v", config, held, err, reason)
		}
	}
	r := newRepo(t)
	r.write(".git/config", string(make([]byte, maxConfig+1)))
	r.refused(workfs.ErrTooBig, secret)
}

// Many indexes that all lead to the dearest chain there is: the allowance ends it.
func TestWorkIsBounded(t *testing.T) {
	zeros := make([]byte, MaxContent)
	id := blobID(string(zeros))
	entries := [][]byte{packed(t, typeBlob, MaxContent, nil, append([]byte{1}, zeros[1:]...))}
	at, last := uint64(12), len(entries[0])
	copyAll := []byte{0x80, 0x80, 0x40, 0x80, 0x80, 0x40} // both sizes
	for range MaxContent >> 16 {
		copyAll = append(copyAll, 0x80|0x04, byte(len(copyAll)-6)/2) // copy 64 KiB from n<<16
	}
	for range maxChain {
		at += uint64(last)
		distance := []byte{byte(last)}
		if last > 0x7f {
			distance = []byte{0x80 | byte(last>>7-1), byte(last & 0x7f)}
		}
		e := packed(t, typeOfsDelta, len(copyAll), distance, copyAll)
		entries, last = append(entries, e), len(e)
	}
	r := plant(t, makeIndex([]item{{id, at}}), makePack(entries...))
	r.want(false, string(zeros))
	for i := range 20 {
		for _, ext := range []string{".idx", ".pack"} {
			from := filepath.Join(r.dir, ".git/objects/pack/pack-x"+ext)
			if err := os.Link(from, filepath.Join(r.dir, fmt.Sprintf(".git/objects/pack/pack-%d%s", i, ext))); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.refused(ErrWork, string(zeros))
}

func TestCancelled(t *testing.T) {
	r := plant(t, makeIndex(nil), makePack())
	root, err := workfs.OpenRoot(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if held, err := Holds(ctx, root, ".git", []byte(secret)); held || !errors.Is(err, context.Canceled) {
		t.Errorf("Holds = %v, %v", held, err)
	}
}
