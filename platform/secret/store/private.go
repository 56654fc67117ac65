package store

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// errExposed is a file that somebody else could read, or could have put there.
var errExposed = errors.New("the file is not private")

// readPrivate reads a file of at most limit bytes that belongs to this user alone. The checks are made on the open file,
// so that it cannot be exchanged after them; opening neither follows a link at the end nor waits for a pipe.
func readPrivate(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow|noWait, 0)
	if err != nil {
		return nil, linkProblem(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a regular file (%s)", errExposed, info.Mode().Type())
	}
	if err := checkPrivate(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, err
}
