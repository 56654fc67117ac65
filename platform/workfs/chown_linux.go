package workfs

import "golang.org/x/sys/unix"

// Chown gives a file or folder to another owner, never what a symlink points to.
func (r *Root) Chown(rel string, uid, gid int) error {
	fd, err := r.open(rel, unix.O_PATH)
	if err != nil {
		return r.fail("chown", rel, err)
	}
	defer unix.Close(fd)
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return r.fail("chown", rel, err)
	}
	return nil
}
