package vm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
)

// A File is one entry of the guest's root file system. Path is absolute, as the
// guest sees it. Missing parent folders belong to root.
type File struct {
	Path string
	// Mode has the permission bits, set-uid, set-gid and sticky bits, and
	// fs.ModeDir for a folder.
	Mode     fs.FileMode
	UID, GID int
	// At most one of these is set.
	Data   []byte
	Source string // a file of this machine
	Link   string // a symbolic link to this
}

// cpioWriter writes the "newc" format that the kernel unpacks as its initramfs;
// the fields are in Documentation/driver-api/early-userspace/buffer-format.rst.
type cpioWriter struct {
	w     io.Writer
	inode uint32
	pos   int64
	made  map[string]bool
}

func newCPIOWriter(w io.Writer) *cpioWriter {
	return &cpioWriter{w: w, made: map[string]bool{"/": true}}
}

// st_mode bits of stat(2), inode(7); fs.FileMode has its own numbering.
const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeLink    = 0o120000
	modeSetUID  = 0o4000
	modeSetGID  = 0o2000
	modeSticky  = 0o1000
)

var errCPIOPath = errors.New("want a clean absolute path")

// add writes f, and before it the folders it needs. A path that was already
// written is an error: the kernel would silently merge the two.
func (c *cpioWriter) add(f File) error {
	if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || strings.ContainsRune(f.Path, 0) {
		return fmt.Errorf("initramfs entry %q: %w", f.Path, errCPIOPath)
	}
	if c.made[f.Path] {
		return fmt.Errorf("initramfs entry %q: written twice", f.Path)
	}
	if parent := path.Dir(f.Path); !c.made[parent] {
		if err := c.add(File{Path: parent, Mode: fs.ModeDir | 0o755}); err != nil {
			return err
		}
	}
	c.made[f.Path] = true
	if err := c.addContent(f); err != nil {
		return fmt.Errorf("initramfs entry %q: %w", f.Path, err)
	}
	return nil
}

func (c *cpioWriter) addContent(f File) error {
	mode := unixMode(f.Mode)
	switch {
	case f.Link != "":
		return c.entry(f, modeLink|0o777, int64(len(f.Link)), strings.NewReader(f.Link))
	case f.Mode.IsDir():
		return c.entry(f, modeDir|mode, 0, nil)
	case f.Source != "":
		return c.addSource(f, modeRegular|mode)
	}
	return c.entry(f, modeRegular|mode, int64(len(f.Data)), strings.NewReader(string(f.Data)))
}

func (c *cpioWriter) addSource(f File, mode uint32) error {
	in, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.Source)
	}
	return c.entry(f, mode, info.Size(), in)
}

func (c *cpioWriter) entry(f File, mode uint32, size int64, body io.Reader) error {
	if size > math.MaxUint32 {
		return fmt.Errorf("%d bytes do not fit the format", size)
	}
	c.inode++
	name := strings.TrimPrefix(f.Path, "/")
	if err := c.header(c.inode, mode, f, uint32(size), name); err != nil {
		return err
	}
	if body != nil {
		n, err := io.CopyN(c, body, size)
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
		}
	}
	return c.pad()
}

// header writes thirteen fields of eight hex digits, then the name with its NUL.
func (c *cpioWriter) header(inode, mode uint32, f File, size uint32, name string) error {
	const nlink, mtime, check = 1, 0, 0
	_, err := fmt.Fprintf(c, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, uint32(f.UID), uint32(f.GID), nlink, mtime, size,
		0, 0, 0, 0, len(name)+1, check, name)
	if err != nil {
		return err
	}
	return c.pad()
}

// Write counts, because names and contents are padded to four bytes.
func (c *cpioWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.pos += int64(n)
	return n, err
}

func (c *cpioWriter) pad() error {
	_, err := c.Write(make([]byte, -c.pos&3))
	return err
}

func (c *cpioWriter) close() error {
	return errors.Join(c.header(0, 0, File{}, 0, "TRAILER!!!"), c.pad())
}

func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for bit, unix := range map[fs.FileMode]uint32{
		fs.ModeSetuid: modeSetUID, fs.ModeSetgid: modeSetGID, fs.ModeSticky: modeSticky,
	} {
		if m&bit != 0 {
			mode |= unix
		}
	}
	return mode
}
