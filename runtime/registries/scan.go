package registries

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"

	"coworker/platform/atomicfile"
)

// Cache keeps answers that cost a read of many megabytes. Values are small texts; both may fail silently, then the work is
// done again.
type Cache interface {
	Get(key string) (value string, ok bool)
	Put(key, value string)
}

// maxProgram bounds the programs that are searched; cargo has about 40 MB.
const maxProgram = 256 << 20

// search finds the first match of a pattern's group in a large file. The key holds size and time of the last change, so an
// update of the tool is noticed.
func (f *finder) search(p string, pattern *regexp.Regexp) string {
	file, info, err := f.regular(p, maxProgram)
	if err != nil {
		return ""
	}
	key := fmt.Sprintf("%s %d %d %s", p, info.Size(), info.ModTime().UnixNano(), pattern)
	if f.host.Cache != nil {
		if value, ok := f.host.Cache.Get(key); ok {
			return value
		}
	}
	found, err := scan(contextReader{f.ctx, file}, pattern)
	if err := errors.Join(err, file.Close()); err != nil {
		return ""
	}
	if f.host.Cache != nil {
		f.host.Cache.Put(key, found)
	}
	return found
}

// scan reads in blocks that overlap by more than a match can have.
func scan(r io.Reader, pattern *regexp.Regexp) (string, error) {
	const block, overlap = 1 << 20, 1024
	buf := make([]byte, overlap+block)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		if m := pattern.FindSubmatch(buf[:kept+n]); m != nil {
			return string(m[1]), nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		kept = copy(buf, buf[max(0, kept+n-overlap):kept+n])
	}
}

// FileCache is a Cache in one private file of the state folder.
type FileCache struct{ Path string }

const (
	maxCache  = 256 << 10
	maxCached = 64
)

func (c FileCache) load() map[string]string {
	info, err := os.Lstat(c.Path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCache {
		return nil
	}
	content, err := os.ReadFile(c.Path)
	if err != nil {
		return nil
	}
	all := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(content))
	if d.Decode(&all) != nil || len(all) > maxCached {
		return nil
	}
	return all
}

// Get reads the file anew; a session asks for a handful of keys.
func (c FileCache) Get(key string) (string, bool) {
	value, ok := c.load()[key]
	return value, ok
}

// Put replaces the file. Of two processes at once, one answer is lost and found again later.
func (c FileCache) Put(key, value string) {
	all := c.load()
	if all == nil || len(all) >= maxCached {
		all = map[string]string{}
	}
	all[key] = value
	content, err := json.Marshal(all)
	if err != nil {
		return
	}
	if err := atomicfile.Write(c.Path, content); errors.Is(err, fs.ErrNotExist) {
		return // no state folder yet
	}
}
