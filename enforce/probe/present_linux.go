package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// maxSample bounds how many paths of the person's trees are tried for each kind.
const maxSample = 32

// present lists the attempts on protected paths of the person's own trees. They change nothing
// even when they work: open without truncation, a file without a name, rmdir of a folder that is
// not empty. Attempts that destroy are made in the scratch repository.
func present(s Setup) []attempt {
	var all []attempt
	add := func(name string, pick func(enforce.Tree) []string, try func(*battery, string) result) {
		paths := sample(s.Spec.Trees, pick)
		if len(paths) == 0 {
			return
		}
		all = append(all, attempt{name: name, wall: enforce.FSProtect, run: func(b *battery) result { return b.eachPath(paths, try) }})
	}
	add("present-write", func(t enforce.Tree) []string { return t.Protected }, (*battery).writeProtected)
	add("present-replace", func(t enforce.Tree) []string { return t.Protected }, (*battery).replaceProtected)
	add("present-pins", writablePins, (*battery).removePin)
	return all
}

func writablePins(t enforce.Tree) []string {
	if !t.Writable {
		return nil // nothing can be renamed on a read-only mount
	}
	return t.Pins
}

// sample picks at most maxSample paths, spread evenly over the list.
func sample(trees []enforce.Tree, pick func(enforce.Tree) []string) []string {
	var all []string
	for _, t := range trees {
		for _, rel := range pick(t) {
			all = append(all, path.Join(t.Path, rel))
		}
	}
	if len(all) <= maxSample {
		return all
	}
	out := make([]string, maxSample)
	for i := range out {
		out[i] = all[i*len(all)/maxSample]
	}
	return out
}

// eachPath makes one attempt for each path and keeps the worst result.
func (b *battery) eachPath(paths []string, try func(*battery, string) result) result {
	results := make([]result, 0, len(paths))
	for _, p := range paths {
		results = append(results, try(b, p))
	}
	r := worst(results...)
	if r.got == enforce.Stopped {
		r.detail = fmt.Sprintf("%s (%d paths)", r.detail, len(paths))
	}
	return r
}

func (b *battery) writeProtected(p string) result {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return unclear(p + ": " + errnoName(err))
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return b.open(p, tmpfile, b.unwritable())
	case unix.S_IFREG:
		return b.open(p, unix.O_WRONLY|unix.O_NOFOLLOW, b.unwritable())
	default:
		return unclear(p + ": is neither a file nor a folder")
	}
}

// replaceProtected asks whether another file can take the name. The kernel refuses to rename and
// to unlink a mount point with EBUSY (rename(2), unlink(2)); a path that is none is safe only if
// nothing can be created next to it.
func (b *battery) replaceProtected(p string) result {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	if err != nil {
		return unclear(p + ": " + errnoName(err))
	}
	const root = unix.STATX_ATTR_MOUNT_ROOT // Linux 5.8
	if st.Attributes_mask&root != 0 && st.Attributes&root != 0 {
		return stopped("a mount point").at(p)
	}
	return b.open(path.Dir(p), tmpfile, b.unwritable()).at("is no mount point")
}

// removePin tries to remove a pinned folder. It must have content: then ENOTEMPTY shows that only
// the content kept it.
func (b *battery) removePin(p string) result {
	if empty, err := isEmpty(p); err != nil {
		return unclear(p + ": " + err.Error())
	} else if empty {
		return unclear(p + ": is empty, so that removing it could work")
	}
	return judge(unix.Rmdir(p), b.pinned(), errnos{unix.ENOTEMPTY, unix.EEXIST}).at(p)
}

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// pinned is how renaming or removing a mount point fails.
func (b *battery) pinned() errnos {
	if b.Backend == enforce.Bare {
		return b.landlock()
	}
	return errnos{unix.EBUSY, unix.EROFS, unix.EACCES}
}
