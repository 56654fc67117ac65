//go:build !linux

package workfs

import (
	"io/fs"
	"os"
)

// Root exists so that callers compile; it cannot be opened here.
type Root struct{}

// OpenRoot returns ErrUnsupported.
func OpenRoot(string) (*Root, error) { return nil, ErrUnsupported }

// NewRoot returns ErrUnsupported.
func NewRoot(int, string) (*Root, error) { return nil, ErrUnsupported }

// Name is empty.
func (*Root) Name() string { return "" }

// Close does nothing.
func (*Root) Close() error { return nil }

// Stat returns ErrUnsupported.
func (*Root) Stat() (Info, error) { return Info{}, ErrUnsupported }

// Lstat returns ErrUnsupported.
func (*Root) Lstat(string) (Info, error) { return Info{}, ErrUnsupported }

// Open returns ErrUnsupported.
func (*Root) Open(string) (*os.File, Info, error) { return nil, Info{}, ErrUnsupported }

// ReadFile returns ErrUnsupported.
func (*Root) ReadFile(string, int64) ([]byte, Info, error) { return nil, Info{}, ErrUnsupported }

// Readlink returns ErrUnsupported.
func (*Root) Readlink(string) (string, error) { return "", ErrUnsupported }

// ReadDir returns ErrUnsupported.
func (*Root) ReadDir(string, int) ([]Entry, error) { return nil, ErrUnsupported }

// WriteFileAtomic returns ErrUnsupported.
func (*Root) WriteFileAtomic(string, []byte, fs.FileMode) error { return ErrUnsupported }

// Mkdir returns ErrUnsupported.
func (*Root) Mkdir(string, fs.FileMode) error { return ErrUnsupported }

// Move returns ErrUnsupported.
func (*Root) Move(string, *Root, string) error { return ErrUnsupported }

// Replace returns ErrUnsupported.
func (*Root) Replace(string, *Root, string) error { return ErrUnsupported }

// Chmod returns ErrUnsupported.
func (*Root) Chmod(string, fs.FileMode) error { return ErrUnsupported }

// RemoveAll returns ErrUnsupported.
func (*Root) RemoveAll(string, Bounds) error { return ErrUnsupported }

// CopyTo returns ErrUnsupported.
func (*Root) CopyTo(string, *Root, string, Bounds) ([]string, error) { return nil, ErrUnsupported }

// Digest returns ErrUnsupported.
func (*Root) Digest(string, Bounds) (string, error) { return "", ErrUnsupported }
