package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Folders of the helper's own, in a mount namespace that nobody else sees: they end with it, however it ends.
const (
	base  = "/tmp"
	Root  = base + "/root"  // the host's tree again, for libcontainer to enter: it needs a root that is a mount of its own
	State = base + "/state" // where libcontainer keeps its notes
)

// Seclude makes Root and State. The process must be alone in its mount namespace.
func Seclude() error {
	// Slaves and not private: what the host mounts later inside a tree shows there, as in the backend native.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	// Copied before the tmpfs hides the host's /tmp.
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy the mounts of the host (open_tree, Linux 5.2): %w", err)
	}
	defer unix.Close(tree)
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=4m"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", base, err)
	}
	for _, dir := range []string{Root, State} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, Root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the host's tree on %s: %w", Root, err)
	}
	return nil
}
