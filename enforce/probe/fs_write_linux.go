package probe

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// tmpfile creates a file that has no name and is gone when it is closed: an attempt to write that
// leaves nothing behind when it works.
const tmpfile = unix.O_TMPFILE | unix.O_WRONLY

func fsWrite(s Setup) []attempt {
	create := func(name string, dirs ...string) attempt {
		return attempt{name: name, wall: enforce.FSWrite, run: func(b *battery) result { return b.createIn(dirs...) }}
	}
	kernel := func(name string, files ...string) attempt {
		return attempt{name: name, wall: enforce.FSWrite, run: func(b *battery) result { return b.openKernel(files...) }}
	}
	all := []attempt{
		create("root", "/"),
		create("system", "/usr", "/usr/bin", "/bin", "/usr/lib"),
		create("etc", "/etc"),
		{name: "system-file", wall: enforce.FSWrite, run: writeSystemFile},
		{name: "system-metadata", wall: enforce.FSWrite, run: writeSystemMetadata},
		{name: "state-file", wall: enforce.FSWrite,
			run: func(b *battery) result {
				return b.open(b.Targets.StateFile, unix.O_WRONLY, append(b.hidden(), b.unwritable()...))
			}},
		{name: "state-folder", wall: enforce.FSWrite,
			run: func(b *battery) result {
				return b.open(path.Dir(b.Targets.StateFile), tmpfile, append(b.hidden(), b.unwritable()...))
			}},
		{name: "state-metadata", wall: enforce.FSWrite, run: writeStateMetadata},
		{name: "truncate", wall: enforce.FSWrite, run: truncateStateFile},
		// core_pattern and modprobe name programs that the host's kernel starts as root.
		kernel("core-pattern", "/proc/sys/kernel/core_pattern"),
		kernel("sysctl", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/domainname"),
		kernel("sysrq", "/proc/sysrq-trigger"),
		kernel("sys", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/kernel/parameters/panic"),
		kernel("binfmt", "/proc/sys/fs/binfmt_misc/register"),
		kernel("cgroup", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs",
			"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/pids/release_agent", "/sys/fs/cgroup/systemd/release_agent"),
		kernel("irq", "/proc/irq/default_smp_affinity"),
		{name: "mount-attributes", wall: enforce.FSWrite, only: enforce.Native, run: changeMount},
		{name: "mounts", wall: enforce.FSWrite, only: enforce.Native, run: writableMounts},
	}
	if !s.noScratch() {
		all = append(all,
			attempt{name: "symlink", wall: enforce.FSWrite, run: writeBySymlink},
			attempt{name: "device-node", wall: enforce.FSWrite, run: makeDevice})
	}
	if readOnlyTrees(s.Spec) > 0 {
		all = append(all, attempt{name: "read-only-trees", wall: enforce.FSWrite, run: writeReadOnlyTrees})
	}
	return all
}

// writeStateMetadata is writeSystemMetadata on a file that the cell's own user owns, where nothing
// but a wall is in the way.
func writeStateMetadata(b *battery) result {
	file := b.Targets.StateFile
	if file == "" {
		return unclear("the setup names no target")
	}
	stops := append(b.hidden(), b.unwritable()...)
	return judge(unix.Removexattr(file, "user.coworker.absent"), stops, errnos{unix.ENODATA, unix.EOPNOTSUPP}).at(file)
}

// truncateStateFile cuts a file to the length it has, which changes nothing: the one way to write
// that opens nothing, which Landlock knows since ABI 3 (Linux 6.2).
func truncateStateFile(b *battery) result {
	file := b.Targets.StateFile
	if file == "" {
		return unclear("the setup names no target")
	}
	stops := append(b.hidden(), b.unwritable()...)
	var st unix.Stat_t
	err := unix.Stat(file, &st)
	if err == nil {
		err = unix.Truncate(file, st.Size)
	}
	return judge(err, stops, nil).at(file)
}

func (b *battery) createIn(dirs ...string) result {
	var results []result
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == unix.ENOENT {
			continue // a system without this folder
		}
		results = append(results, b.open(dir, tmpfile, b.unwritable()))
	}
	return worst(results...)
}

// openKernel opens control files without writing. Absence is as good as a refusal: a cell needs
// none of them.
func (b *battery) openKernel(files ...string) result {
	var results []result
	for _, f := range files {
		results = append(results, b.open(f, unix.O_WRONLY, errnos{unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENOTDIR}))
	}
	return worst(results...)
}

// systemFiles exist on nearly every system; those that are there are the targets.
var systemFiles = []string{"/usr/bin/env", "/bin/sh", "/usr/lib/os-release", "/etc/passwd"}

func systemFile() (string, bool) {
	for _, f := range systemFiles {
		if unix.Access(f, unix.F_OK) == nil {
			return f, true
		}
	}
	return "", false
}

// openSystemFile opens a system file for writing, by the name that through gives it. It does not
// truncate, so that a working attempt changes neither the content nor a time stamp.
//
// A program that runs at this moment answers root ETXTBSY before its mount is asked (do_dentry_open
// in the kernel's fs/open.c), which proves nothing. Where all tools are one program (BusyBox,
// uutils) that is likely, so the next file is tried.
func (b *battery) openSystemFile(through func(string) (string, error)) result {
	r := unclear("no system file is visible")
	for _, f := range systemFiles {
		if unix.Access(f, unix.F_OK) != nil {
			continue
		}
		name, err := through(f)
		if err != nil {
			return unclear(err.Error())
		}
		err = openClose(name, unix.O_WRONLY)
		if r = judge(err, b.unwritable(), nil).at(name); err != unix.ETXTBSY {
			return r
		}
	}
	return r
}

func writeSystemFile(b *battery) result {
	return b.openSystemFile(func(f string) (string, error) { return f, nil })
}

// writeSystemMetadata removes an attribute that does not exist: ENODATA shows that a mount let
// the change through, and nothing was changed. Landlock has no right for metadata.
func writeSystemMetadata(b *battery) result {
	f, ok := systemFile()
	if !ok {
		return unclear("no system file is visible")
	}
	return judge(unix.Removexattr(f, "user.coworker.absent"), b.unwritable(), errnos{unix.ENODATA, unix.EOPNOTSUPP}).at(f)
}

func writeBySymlink(b *battery) result {
	return b.openSystemFile(scratch(b.Targets.Scratch).throughLink)
}

// makeDevice makes the node of /dev/mem in the scratch repository; it is removed unopened.
func makeDevice(b *battery) result {
	if b.Targets.Scratch == "" {
		return unclear(errNoScratch.Error())
	}
	var results []result
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		node := path.Join(b.Targets.Scratch, "node")
		err := unix.Mknod(node, kind|0o600, int(unix.Mkdev(1, 1)))
		if err == nil {
			unix.Unlink(node)
		}
		results = append(results, judge(err, errnos{unix.EPERM, unix.EACCES}, nil).at(node))
	}
	return worst(results...)
}

// changeMount asks to change nothing about the root mount: the kernel checks the right to mount
// before it sees that there is nothing to do.
func changeMount(*battery) result {
	return judge(unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{}), refusedCall, nil)
}

func readOnlyTrees(s enforce.Spec) int {
	n := 0
	for _, t := range s.Trees {
		if !t.Writable {
			n++
		}
	}
	return n
}

// maxTrees bounds how many read-only trees are tried.
const maxTrees = 16

func writeReadOnlyTrees(b *battery) result {
	var results []result
	for _, t := range b.Spec.Trees {
		if t.Writable || len(results) == maxTrees {
			continue
		}
		flags := tmpfile
		if t.File {
			flags = unix.O_WRONLY
		}
		results = append(results, b.open(t.Path, flags, b.unwritable()))
	}
	r := worst(results...)
	if r.got == enforce.Stopped {
		r.detail = fmt.Sprintf("%s (%d trees)", r.detail, len(results))
	}
	return r
}
