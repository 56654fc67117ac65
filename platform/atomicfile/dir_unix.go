//go:build unix

package atomicfile

import "os"

// syncDir makes a new name durable: fsync(2) on the file alone does not cover
// the directory entry.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
