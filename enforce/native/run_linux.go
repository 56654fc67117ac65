package native

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// run does one step.
func (b *builder) run(s *source) error {
	if s.skip {
		return nil
	}
	switch s.op {
	case opFolder:
		return stepError("mkdir", s.target, b.folder(s.target, s.mode))
	case opLink:
		return stepError("symlink", s.target, b.link(s.source, s.target))
	case opFile:
		return stepError("write", s.target, b.file(s.target, []byte(s.data), s.mode))
	case opBind:
		return b.bind(s)
	case opPrivate:
		return stepError("bind private folder on", s.target, b.privateFolder(s))
	case opDevpts:
		s.data = "newinstance,ptmxmode=0666,mode=0620"
		return stepError("mount devpts on", s.target, b.filesystem("devpts", s))
	case opOverlay:
		return stepError("mount overlay on", s.target, b.overlay(s))
	case opTree:
		return b.attachTree(s)
	}
	return fmt.Errorf("bug: step %d has no action", s.op)
}

// mountPoint opens a path of the new root as a mount target. Missing folders are made on mounts
// of coworker's own only: the person's trees and the system never get a stub.
func (b *builder) mountPoint(target string, file bool) (int, error) {
	rel := strings.TrimPrefix(target, "/")
	if fd, err := openBeneath(b.root, rel, 0); err != unix.ENOENT {
		return fd, err
	}
	parts := strings.Split(rel, "/")
	dir, err := unix.Dup(b.root)
	if err != nil {
		return -1, err
	}
	for i, name := range parts {
		last := i == len(parts)-1
		next, err := b.child(dir, name, last && file)
		unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

func (b *builder) child(dir int, name string, file bool) (int, error) {
	fd, err := openBeneath(dir, name, 0)
	if err != unix.ENOENT {
		return fd, err
	}
	id, err := mountID(dir)
	if err != nil {
		return -1, err
	}
	if !b.own[id] {
		return -1, fmt.Errorf("%q is missing in a folder that is not coworker's to write in", name)
	}
	// The folders are O_PATH descriptors; *at calls accept those.
	if file {
		made, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return -1, err
		}
		unix.Close(made)
	} else if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return -1, err
	}
	return openBeneath(dir, name, 0)
}

// parent opens the folder of a target, making it if it is coworker's own.
func (b *builder) parent(target string) (int, string, error) {
	dir, name := path.Split(target)
	if dir == "/" {
		fd, err := unix.Dup(b.root)
		return fd, name, err
	}
	fd, err := b.mountPoint(strings.TrimSuffix(dir, "/"), false)
	return fd, name, err
}

func (b *builder) folder(target string, mode uint32) error {
	fd, err := b.mountPoint(target, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The path is coworker's own and has no links; chmod by descriptor needs a real one.
	dir, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Fchmod(dir, mode)
}

func (b *builder) link(text, target string) error {
	dir, name, err := b.parent(target)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Symlinkat(text, dir, name)
}

func (b *builder) file(target string, data []byte, mode uint32) error {
	dir, name, err := b.parent(target)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	// A start-up file may already lie in a persistent folder of the private home: it is made anew.
	if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return unix.Fchmod(fd, mode)
}

func (b *builder) bind(s *source) error {
	if s.link != "" {
		return stepError("symlink", s.target, b.link(s.link, s.target))
	}
	target, err := b.mountPoint(s.target, s.file)
	if err != nil {
		return stepError("make mount point", s.target, err)
	}
	defer unix.Close(target)
	flags := mountFlags{readOnly: s.readOnly && !b.off(enforce.FSWrite), device: s.device, exec: s.exec}
	if err := b.attach(s.fd, target, flags); err != nil {
		return stepError("bind on", s.target, err)
	}
	if s.readOnly || s.device {
		return nil
	}
	return b.ownTop(s.target) // a folder of the private home
}

// ownTop records the mount that is now on target as coworker's own.
func (b *builder) ownTop(target string) error {
	fd, err := openBeneath(b.root, strings.TrimPrefix(target, "/"), 0)
	if err != nil {
		return stepError("open", target, err)
	}
	defer unix.Close(fd)
	return b.ownMount(fd)
}

// privateFolder makes a folder of the private tmpfs and attaches it.
func (b *builder) privateFolder(s *source) error {
	folder := private + "/" + strings.ReplaceAll(strings.TrimPrefix(s.target, "/"), "/", "_")
	if err := b.folder(folder, s.mode); err != nil {
		return err
	}
	fd, err := openBeneath(b.root, strings.TrimPrefix(folder, "/"), unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	target, err := b.mountPoint(s.target, false)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if err := b.attach(fd, target, mountFlags{exec: s.exec}); err != nil {
		return err
	}
	return b.ownTop(s.target)
}

func (b *builder) filesystem(kind string, s *source) error {
	fd, err := b.mountPoint(s.target, false)
	if err != nil {
		return err
	}
	unix.Close(fd)
	flags := uintptr(unix.MS_NOSUID)
	if !s.device {
		flags |= unix.MS_NODEV
	}
	if !s.exec {
		flags |= unix.MS_NOEXEC
	}
	// mountPoint saw no link on the way and nobody else is in this mount namespace yet.
	if err := unix.Mount(kind, base+s.target, kind, flags, s.data); err != nil {
		return err
	}
	return b.ownTop(s.target)
}

// overlay shows a host cache under a private one: reads fall through to the host's, writes stay
// in the store. Linux before 5.11 has no overlay in a user namespace; there the private cache
// stands alone and the report says so.
func (b *builder) overlay(s *source) error {
	target, err := b.mountPoint(s.target, false)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	// Descriptors instead of paths: no escaping of commas and colons, nothing to swap.
	options := fmt.Sprintf("lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d,userxattr", s.fd, s.upper, s.work)
	err = unix.Mount("overlay", base+s.target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	b.notes = append(b.notes, fmt.Sprintf("host cache %q is not shared: overlay in a user namespace: %v", s.source, err))
	return b.attach(s.upper, target, mountFlags{exec: true})
}

// attachTree attaches a tree of the Spec and covers what is protected and hidden in it.
func (b *builder) attachTree(s *source) error {
	t := b.spec.Trees[s.tree]
	target, err := b.mountPoint(s.target, s.file)
	if err != nil {
		return stepError("make mount point", s.target, err)
	}
	defer unix.Close(target)
	if b.staged(t) {
		if err := b.attachStage(s, target); err != nil {
			return stepError(StepStage, s.target, err)
		}
		return b.coverTree(t)
	}
	flags := mountFlags{readOnly: s.readOnly && !b.off(enforce.FSWrite), exec: true}
	if err := b.attach(s.fd, target, flags); err != nil {
		return stepError("bind tree on", s.target, err)
	}
	return b.coverTree(t)
}

// coverTree pins and masks. Pins come first, shallow before deep (the lists are sorted, and a
// folder sorts before what is in it), because each one is looked up through those above it.
func (b *builder) coverTree(t enforce.Tree) error {
	type cover struct {
		paths []string
		kind  enforce.CoverKind
	}
	var covers []cover
	if t.Writable && !b.off(enforce.FSProtect) {
		covers = append(covers, cover{t.Pins, enforce.CoverFolder}, cover{t.Protected, enforce.CoverReadOnly})
	}
	if !b.off(enforce.FSHide) {
		covers = append(covers, cover{t.Masks, enforce.CoverMask}, cover{t.MaskDirs, enforce.CoverMask})
	}
	for _, c := range covers {
		for _, rel := range c.paths {
			if err := b.cover(t.Path, rel, c.kind); err != nil {
				return stepError(string(c.kind)+" in "+t.Path, rel, err)
			}
		}
	}
	return nil
}

func (b *builder) cover(tree, rel string, kind enforce.CoverKind) error {
	top, err := openBeneath(b.root, strings.TrimPrefix(tree, "/"), 0)
	if err != nil {
		return fmt.Errorf("open tree: %w", err)
	}
	defer unix.Close(top)
	fd, err := openBeneath(top, rel, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return errors.New("it is a symbolic link, which cannot be covered by a mount")
	case kind == enforce.CoverFolder && !folder:
		return errors.New("it is not a folder any more")
	case kind == enforce.CoverMask && folder:
		return b.attach(b.maskDir, fd, mountFlags{readOnly: true})
	case kind == enforce.CoverMask:
		return b.attach(b.maskFile, fd, mountFlags{readOnly: true})
	default:
		return b.attach(fd, fd, mountFlags{readOnly: kind == enforce.CoverReadOnly, exec: true})
	}
}

// Cover puts a pin or a mask back after its mount fell off because somebody outside replaced
// the file under it, or takes a whole tree away.
func (r *Root) Cover(tree, rel string, kind enforce.CoverKind) error {
	for _, t := range r.b.spec.Trees {
		if t.Path != tree {
			continue
		}
		if kind == enforce.CoverDetach {
			return stepError("detach", tree, unix.Unmount(tree, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
		}
		if err := checkRelative(enforce.Spec{HomeDirs: []string{rel}}); err != nil {
			return err
		}
		return stepError(string(kind)+" in "+tree, rel, r.b.cover(tree, rel, kind))
	}
	return &StepError{Step: "cover", Value: tree, Err: errors.New("no such tree in this session")}
}
