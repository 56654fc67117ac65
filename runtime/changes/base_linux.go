package changes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"coworker/platform/workfs"
)

const (
	baseName  = "base"
	baseMagic = "coworker base 1\n"
	maxBase   = 2_000_000 // names
	maxDepth  = 400       // a depth costs two descriptors
	maxName   = 1 << 16
	linksBit  = 0x80
	granule   = 10 * time.Millisecond // no kernel's clock for files is coarser (CONFIG_HZ=100)
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// Baseline remembers what the host's folder looks like. It is called before the cell starts. Nothing is read but names and
// their stat: 20,000 files cost some 50 ms.
func (st *Stage) Baseline(ctx context.Context, index int, root *workfs.Root) error {
	folder := st.Folder(index)
	if folder == "" {
		return fmt.Errorf("tree %d of session %s is not staged: %w", index, st.meta.Session, ErrNoStage)
	}
	info, err := root.Stat()
	if err != nil {
		return err
	}
	temp := filepath.Join(folder, baseName+".part")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	b := &baseWriter{ctx: ctx, rootDev: info.Dev, out: bufio.NewWriterSize(f, 1<<18), buf: workfs.NewDirBuffer(), name: root.Name()}
	err = b.write(root)
	err = errors.Join(err, f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, filepath.Join(folder, baseName))
}

type baseWriter struct {
	ctx     context.Context
	rootDev uint64
	out     *bufio.Writer
	sum     uint64
	buf     []byte
	line    []byte
	count   int
	name    string
	recent  time.Time // latest change time seen
}

func (b *baseWriter) write(root *workfs.Root) error {
	// A file that changed in this very granule of the file system's clock could change again and look the same.
	for try := 0; ; try++ {
		b.count, b.recent = 0, time.Time{}
		b.emit([]byte(baseMagic))
		dir, err := root.OpenDir(".")
		if err != nil {
			return err
		}
		if err := b.folder(dir, ".", 0); err != nil {
			return err
		}
		if age := time.Since(b.recent); age > granule || age < -time.Hour || try == 2 {
			break
		}
		if err := b.again(); err != nil {
			return err
		}
	}
	b.emit([]byte{0})
	var end [8]byte
	binary.BigEndian.PutUint64(end[:], b.sum)
	b.emit(end[:])
	return b.out.Flush()
}

// again starts the record anew after a short wait.
func (b *baseWriter) again() error {
	select {
	case <-b.ctx.Done():
		return b.ctx.Err()
	case <-time.After(granule + time.Millisecond):
	}
	b.emit([]byte{2}) // the reader forgets what came before
	return nil
}

func (b *baseWriter) emit(p []byte) {
	b.sum = crc64.Update(b.sum, crcTable, p)
	b.out.Write(p) // Flush returns the first error
}

// folder writes one folder and what is below it, and closes it.
func (b *baseWriter) folder(dir *workfs.Dir, rel string, depth int) error {
	defer dir.Close()
	if err := b.ctx.Err(); err != nil {
		return err
	}
	var names []string
	err := dir.Each(b.buf, func(name []byte, _ workfs.Kind, _ uint64) error {
		if b.count++; b.count > maxBase {
			return fmt.Errorf("%s holds more than %d names: %w", b.name, maxBase, ErrLimit)
		}
		names = append(names, string(name))
		return nil
	})
	if err != nil {
		return err
	}
	b.line = append(b.line[:0], 1)
	b.line = appendString(b.line, rel)
	b.line = binary.AppendUvarint(b.line, uint64(len(names)))
	var subs []string
	for _, name := range names {
		info, err := dir.Lstat(name)
		if err != nil {
			info = workfs.Info{} // gone meanwhile, or not ours to see: never the same as anything
		}
		b.line = appendString(b.line, name)
		b.line = appendStamp(b.line, stampOf(info, b.rootDev))
		if info.Kind == workfs.Directory && info.Dev == b.rootDev {
			subs = append(subs, name)
		} else if info.Change.After(b.recent) {
			b.recent = info.Change
		}
	}
	b.emit(b.line)
	if depth >= maxDepth {
		return nil // what is below counts as made by the person since: a conflict
	}
	for _, name := range subs {
		sub, err := dir.OpenDir(name)
		if err != nil {
			continue // unreadable: what is below is unknown, so it is never taken for unchanged
		}
		if err := b.folder(sub, workfs.Join(rel, name), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStamp(b []byte, s stamp) []byte {
	kind := byte(s.Kind)
	if s.Links {
		kind |= linksBit
	}
	b = append(b, kind)
	for _, v := range [...]uint64{s.Dev, s.Ino, uint64(s.Mode)} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range [...]int64{s.Size, s.Mtime, s.Ctime} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// readBase reads the record. One that is not there or does not hold together is an error: without it everything would look
// as if the person had just made it.
func readBase(folder string) (map[string]stamp, error) {
	data, err := os.ReadFile(filepath.Join(folder, baseName))
	if err != nil {
		return nil, err
	}
	torn := fmt.Errorf("%s in %s: %w", baseName, folder, ErrTorn)
	if len(data) < len(baseMagic)+9 || !bytes.HasPrefix(data, []byte(baseMagic)) {
		return nil, torn
	}
	body, end := data[:len(data)-8], data[len(data)-8:]
	if body[len(body)-1] != 0 || crc64.Checksum(body, crcTable) != binary.BigEndian.Uint64(end) {
		return nil, torn
	}
	r := &baseReader{in: bytes.NewReader(body[len(baseMagic):]), base: map[string]stamp{}}
	if err := r.all(); err != nil {
		return nil, fmt.Errorf("%w: %w", torn, err)
	}
	return r.base, nil
}

type baseReader struct {
	in   *bytes.Reader
	base map[string]stamp
}

func (r *baseReader) all() error {
	for {
		mark, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		switch mark {
		case 0:
			return nil
		case 1:
			if err := r.folder(); err != nil {
				return err
			}
		case 2:
			clear(r.base)
			if _, err := r.in.Seek(int64(len(baseMagic)), io.SeekCurrent); err != nil {
				return err
			}
		default:
			return fmt.Errorf("mark %d", mark)
		}
	}
}

func (r *baseReader) folder() error {
	rel, err := r.text()
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(r.in)
	if err != nil || n > maxBase {
		return errors.Join(err, fmt.Errorf("%d names", n))
	}
	for range n {
		name, err := r.text()
		if err != nil {
			return err
		}
		s, err := r.stamp()
		if err != nil {
			return err
		}
		r.base[workfs.Join(rel, name)] = s
	}
	return nil
}

func (r *baseReader) text() (string, error) {
	n, err := binary.ReadUvarint(r.in)
	if err != nil || n > maxName*maxDepth {
		return "", errors.Join(err, fmt.Errorf("a name of %d bytes", n))
	}
	b := make([]byte, min(n, uint64(r.in.Len())))
	_, err = io.ReadFull(r.in, b)
	return string(b), err
}

func (r *baseReader) stamp() (s stamp, err error) {
	kind, err := r.in.ReadByte()
	if err != nil {
		return s, err
	}
	var u [3]uint64
	var v [3]int64
	for i := range u {
		if u[i], err = binary.ReadUvarint(r.in); err != nil {
			return s, err
		}
	}
	for i := range v {
		if v[i], err = binary.ReadVarint(r.in); err != nil {
			return s, err
		}
	}
	return stamp{Kind: workfs.Kind(kind &^ linksBit), Links: kind&linksBit != 0, Dev: u[0], Ino: u[1], Mode: fs.FileMode(u[2]), Size: v[0], Mtime: v[1], Ctime: v[2]}, nil
}
