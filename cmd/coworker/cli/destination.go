package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// destination is where --report goes, settled before the command runs: the command may have the folder in its hands
// and put a link, a pipe or another folder in the way meanwhile.
type destination struct {
	folder  *os.Root // holds the folder itself, whatever its name leads to later
	name    string
	owned   bool      // special is closed by write
	special io.Writer // a pipe, a device or a stream of this process, which cannot be replaced and is written to
}

// openDestination finds out what the file is. A pipe that nobody reads is refused now instead of being waited for.
func (e *environment) openDestination(file string) (*destination, error) {
	switch file { // opening these anew needs rights on somebody else's pipe or terminal
	case "/dev/stdout":
		return &destination{special: e.out}, nil
	case "/dev/stderr":
		return &destination{special: e.err}, nil
	}
	info, err := os.Stat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("report: %w", err)
	}
	if err == nil && info.IsDir() {
		return nil, fmt.Errorf("report %q: it is a folder", file)
	}
	if err == nil && !info.Mode().IsRegular() {
		special, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|nonBlocking, 0)
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		return &destination{special: special, owned: true}, nil
	}
	folder, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return &destination{folder: folder, name: filepath.Base(file)}, nil
}

// write stores the report: in one step, so that nobody reads half of it, and never through a link. It is called once.
func (d *destination) write(data []byte) error {
	if d.special != nil {
		_, err := d.special.Write(data)
		if f, ok := d.special.(*os.File); ok && d.owned {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	defer d.folder.Close()
	temp := "." + d.name + "." + rand.Text()[:8]
	f, err := d.folder.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = d.folder.Rename(temp, d.name)
	}
	if err != nil {
		return errors.Join(err, d.folder.Remove(temp))
	}
	return nil
}
