package probe

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// attack is one destructive attempt in the scratch repository. When it works, undo puts back what
// later attempts need; a session with a leak is refused, so the rest does not matter.
type attack struct {
	name string
	wall enforce.Wall
	past errnos // what shows that the wall was not there, besides success
	try  func(d scratch) error
	undo func(d scratch)
}

// scratch is the path of the scratch repository.
type scratch string

func (d scratch) path(name string) string { return path.Join(string(d), name) }

var errNoScratch = errors.New("the setup names no scratch repository")

// noScratch is true in the backend without mounts, where there is nothing to attack: pins and
// masks do not exist. In native a missing repository leaves its attempts inconclusive.
func (s Setup) noScratch() bool { return s.Backend == enforce.Bare && s.Targets.Scratch == "" }

// file makes a file to attack with and returns its path.
func (d scratch) file(name string) (string, error) {
	if d == "" { // the name alone would be one in the working folder
		return "", errNoScratch
	}
	p := d.path(name)
	fd, err := unix.Open(p, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return "", err
	}
	return p, unix.Close(fd)
}

// The names that attacks use in the scratch repository. What they prepare stays for the next one
// and is removed at the end: on a disk, creating is what takes time.
const (
	weapon  = "new"
	folder  = "other"
	lock    = ".git/lock"
	linkOut = "out" // to /
)

var leftovers = []string{weapon, folder, lock, linkOut, "away", "hardlink", ".git/hooks/new", ".git/hooks/folder", ".git/hooks/link"}

// throughLink returns a path that leads to an absolute one through a link in the repository.
func (d scratch) throughLink(p string) (string, error) {
	if d == "" {
		return "", &preparation{errNoScratch}
	}
	if err := unix.Symlink("/", d.path(linkOut)); err != nil && err != unix.EEXIST {
		return "", &preparation{err}
	}
	return d.path(linkOut) + p, nil
}

func (d scratch) clean() {
	if d == "" {
		return
	}
	for _, w := range leftovers {
		if unix.Unlink(d.path(w)) == unix.EISDIR {
			unix.Rmdir(d.path(w))
		}
	}
}

func scratchAttacks(s Setup) []attempt {
	if s.noScratch() {
		missing := func(*battery) result { return unclear("this backend can neither pin nor mask") }
		return []attempt{
			{name: "scratch", wall: enforce.FSProtect, run: missing},
			{name: "scratch", wall: enforce.FSHide, run: missing},
		}
	}
	var all []attempt
	for _, list := range [][]attack{renames(), contents(), hooks(), hiddenAttacks()} {
		for _, a := range list {
			all = append(all, attempt{name: a.name, wall: a.wall, run: a.run})
		}
	}
	return all
}

func (a attack) run(b *battery) result {
	d := scratch(b.Targets.Scratch)
	if d == "" {
		return unclear(errNoScratch.Error())
	}
	err := a.try(d)
	if setup, ok := err.(*preparation); ok {
		return unclear(setup.Error())
	}
	if err == nil {
		if a.undo != nil {
			a.undo(d)
		}
		d.clean()
	}
	stops := append(b.pinned(), unix.EXDEV) // a pin is a mount of its own: rename and link do not cross it
	if b.Backend == enforce.Bare {
		stops = b.landlock()
	}
	return judge(err, stops, a.past)
}

// preparation is an error before the attempt itself.
type preparation struct{ err error }

func (p *preparation) Error() string { return "preparing the attempt: " + errnoName(p.err) }

func renameOver(target, from string) func(scratch) error {
	return func(d scratch) error {
		f, err := d.file(from)
		if err != nil {
			return &preparation{err}
		}
		return unix.Rename(f, d.path(target))
	}
}

func exchange(target string, isFolder bool) func(scratch) error {
	return func(d scratch) error {
		other := d.path(folder)
		err := unix.Mkdir(other, 0o755)
		if !isFolder {
			other, err = d.file(weapon)
		}
		if err != nil && err != unix.EEXIST {
			return &preparation{err}
		}
		err = unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, d.path(target), unix.RENAME_EXCHANGE)
		if err == nil { // back again
			unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, d.path(target), unix.RENAME_EXCHANGE)
		}
		return err
	}
}

func moveAway(target string) (try func(scratch) error, undo func(scratch)) {
	return func(d scratch) error { return unix.Rename(d.path(target), d.path("away")) },
		func(d scratch) { unix.Rename(d.path("away"), d.path(target)) }
}

func renames() []attack {
	awayMCP, backMCP := moveAway(scratchMCP)
	awayGit, backGit := moveAway(".git")
	awayHooks, backHooks := moveAway(scratchHooks)
	protect := enforce.FSProtect
	return []attack{
		{name: "move-away", wall: protect, try: awayMCP, undo: backMCP},
		{name: "move-parent", wall: protect, try: awayGit, undo: backGit},
		{name: "move-folder", wall: protect, try: awayHooks, undo: backHooks},
		{name: "exchange", wall: protect, try: exchange(scratchMCP, false)},
		{name: "exchange-parent", wall: protect, try: exchange(".git", true)},
		{name: "remove-folder", wall: protect, past: errnos{unix.ENOTEMPTY},
			try: func(d scratch) error { return unix.Rmdir(d.path(scratchHooks)) }},
		{name: "link", wall: protect, try: func(d scratch) error { return unix.Link(d.path(scratchConfig), d.path("hardlink")) }},
	}
}

func contents() []attack {
	protect, config := enforce.FSProtect, scratchConfig
	return []attack{
		{name: "write", wall: protect, try: func(d scratch) error { return openClose(d.path(config), unix.O_WRONLY|unix.O_APPEND) }},
		{name: "write-by-link", wall: protect, try: writeByLink},
		{name: "write-by-descriptor", wall: protect, try: writeByDescriptor},
		{name: "truncate", wall: protect, try: func(d scratch) error { return unix.Truncate(d.path(config), 4096) }},
		{name: "chmod", wall: protect, try: func(d scratch) error { return unix.Chmod(d.path(config), 0o777) }},
		{name: "chown", wall: protect, try: func(d scratch) error { return unix.Lchown(d.path(config), -1, -1) }},
		{name: "times", wall: protect, try: func(d scratch) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, d.path(config), nil, 0)
		}},
		{name: "attribute", wall: protect, past: errnos{unix.EOPNOTSUPP}, try: func(d scratch) error {
			return unix.Setxattr(d.path(config), "user.coworker", []byte("1"), 0)
		}},
		{name: "rename-over", wall: protect, try: renameOver(scratchMCP, weapon)},
		{name: "rename-over-config", wall: protect, try: renameOver(config, lock)},
		{name: "unlink", wall: protect, try: func(d scratch) error { return unix.Unlink(d.path(scratchMCP)) },
			undo: func(d scratch) { d.file(scratchMCP) }},
	}
}

func openClose(file string, flags int) error {
	fd, err := unix.Open(file, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func writeByLink(d scratch) error {
	p, err := d.throughLink(d.path(scratchConfig))
	if err != nil {
		return err
	}
	return openClose(p, unix.O_WRONLY)
}

// writeByDescriptor goes through a descriptor that only names the file, and opens it again.
func writeByDescriptor(d scratch) error {
	fd, err := unix.Open(d.path(scratchConfig), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &preparation{err}
	}
	defer unix.Close(fd)
	return openClose("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY)
}

func hooks() []attack {
	protect := enforce.FSProtect
	return []attack{
		{name: "hook-create", wall: protect, try: func(d scratch) error {
			return openClose(d.path(scratchHooks+"/new"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
		}},
		{name: "hook-mkdir", wall: protect, try: func(d scratch) error { return unix.Mkdir(d.path(scratchHooks+"/folder"), 0o755) }},
		{name: "hook-symlink", wall: protect, try: func(d scratch) error { return unix.Symlink("../../new", d.path(scratchHooks+"/link")) }},
		{name: "hook-rename", wall: protect, try: renameOver(scratchHook, weapon)},
		{name: "hook-link", wall: protect, try: linkHook},
	}
}

// linkHook gives a file without a name a name among the hooks, see open(2) under O_TMPFILE.
func linkHook(d scratch) error {
	fd, err := unix.Open(string(d), tmpfile|unix.O_CLOEXEC, 0o755)
	if err == unix.EOPNOTSUPP { // an overlay before Linux 6.1 has no files without a name
		f, err := d.file(weapon)
		if err != nil {
			return &preparation{err}
		}
		return unix.Link(f, d.path(scratchHooks+"/new"))
	}
	if err != nil {
		return &preparation{err}
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD,
		d.path(scratchHooks+"/new"), unix.AT_SYMLINK_FOLLOW)
}

// absent creates protected names that do not exist. In live mode that works, and is undone by the
// sweep: the supervisor looks from outside whether the paths are gone.
func absent(s Setup) []attempt {
	if s.noScratch() {
		return nil
	}
	var all []attempt
	for _, a := range AbsentAttempts() {
		all = append(all, attempt{
			name: strings.TrimPrefix(a.Name, string(enforce.FSProtect)+"/"),
			wall: enforce.FSProtect, part: enforce.PartAbsent, run: a.create,
		})
	}
	return all
}

func (a AbsentAttempt) create(b *battery) result {
	d := scratch(b.Targets.Scratch)
	if d == "" {
		return unclear(errNoScratch.Error())
	}
	dirs := a.folders()
	for _, p := range a.Paths {
		var err error
		if dirs[p] {
			err = unix.Mkdir(d.path(p), 0o755)
		} else {
			err = openClose(d.path(p), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
		}
		if err != nil {
			return judge(err, append(b.unwritable(), unix.EPERM), nil).at(p)
		}
	}
	return leaked("created " + strings.Join(a.Paths, ", "))
}
