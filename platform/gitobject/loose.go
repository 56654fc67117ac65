package gitobject

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"coworker/platform/workfs"
)

// loose looks for objects/xx/yyyy…, a zlib stream of header and content (gitformat-loose(5)). A file of that name alone
// proves nothing.
func (s *search) loose(root *workfs.Root, objects string) (bool, error) {
	id := hex.EncodeToString(s.id)
	rel := workfs.Join(objects, id[:2]+"/"+id[2:])
	f, _, err := root.Open(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	held, err := s.matches(f, s.header, s.content)
	if err != nil {
		return false, fmt.Errorf("loose object %s: %w", rel, err)
	}
	return held, nil
}
