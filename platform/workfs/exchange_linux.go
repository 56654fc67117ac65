package workfs

import "golang.org/x/sys/unix"

// Exchange swaps two files or folders in one step: no reader sees either name missing, and what
// stood at the second name is not lost (renameat2(2), RENAME_EXCHANGE, Linux 3.15).
func (r *Root) Exchange(a, b string) error {
	if err := r.rename(a, r, b, unix.RENAME_EXCHANGE); err != nil {
		return r.fail("exchange", a, err)
	}
	return nil
}

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
