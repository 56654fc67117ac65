// Package treescan looks at one writable or readable tree from outside the wall, once or again and again, and says what the
// walls must cover: protected paths and the folders to pin for them, secret files, host sockets, other mounts, repositories.
//
// The tree is hostile. It is read through platform/workfs, one openat(2) a folder and no stat where getdents(2) gives the
// type; no symlink is followed, nothing is executed, every count is bounded and a bound that is hit is a LimitError: what
// was not looked at is never taken for harmless. Output is sorted, so two scans of one tree are equal.
//
// The session supervisor imports it; code behind the wall must not. It imports platform/workfs, enforce/protect and
// enforce/hide. What must not be added: decisions about what to do with a finding (runtime/held, the supervisor), and
// knowledge of names (enforce/protect, enforce/hide).
package treescan

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"coworker/enforce/protect"
	"coworker/platform/workfs"
)

// Config bounds a scan. The zero value of a number takes its default.
type Config struct {
	// Exclude lists folders, relative to the root, that are not entered (config key scan.exclude). They are reported as
	// present: nothing in them is protected or hidden, so the wall builder must cover the whole folder.
	Exclude []string
	// CountLinks looks at every regular file for hard links. Without it one file in each folder below node_modules or a
	// virtual environment is looked at: pnpm and uv link whole packages, so one stat a folder tells.
	CountLinks bool
	// NoMarks makes every Sweep a full walk. For a session of one command a second walk is cheaper than marks: closing an
	// inotify instance waits for the kernel's grace period, about 10 ms, in the middle of the exit.
	NoMarks bool

	// As is whom the cell runs as, where the scan itself has more rights (root). What that user could not list counts as
	// unreadable, as it would in a scan of their own.
	As *Reader

	MaxEntries int // default 2,000,000
	MaxDepth   int // default 1,024; a depth costs one open descriptor
	MaxMounts  int // default 8,192 pins, covers and masks; the kernel's own limit is fs.mount-max
}

// Reader is a user without any capability.
type Reader struct{ UID, GID uint32 }

func (c Config) withDefaults() Config {
	if c.MaxEntries == 0 {
		c.MaxEntries = 2_000_000
	}
	if c.MaxDepth == 0 {
		c.MaxDepth = 1024
	}
	if c.MaxMounts == 0 {
		c.MaxMounts = 8192
	}
	return c
}

// Path is one finding: where it is and what is there now.
type Path struct {
	Rel  string
	Kind workfs.Kind
	Dev  uint64
	Ino  uint64
	// Nlink over 1 on a file means that it has another name; see Result.Links.
	Nlink uint64
	// Change is the ctime in nanoseconds; with Ino it tells one file from its replacement.
	Change int64
}

// Protected is a present protected path.
type Protected struct {
	Path
	Rule protect.Rule
}

// Secret is a file to mask. A symlink is not masked itself: Target is its text, and the file it names is found by its own
// name or not at all.
type Secret struct {
	Path
	Why    string
	Target string
}

// Repository is something git would take for one.
type Repository struct {
	Rel    string // the git directory, or the .git file
	Bare   bool   // a repository layout in a folder that is not called .git
	Gitdir string // for a .git file: the absolute path it names, lexically resolved
	// Outside is set if Gitdir is not below the tree: the worktree of a repository elsewhere.
	Outside bool
}

// Unreadable is a folder that could not be listed. A folder without rights is no wall: its owner can change the mode, so if
// the cell runs as UID the wall builder must cover it.
type Unreadable struct {
	Rel  string
	Mode fs.FileMode
	UID  uint32
}

// Links is a protected or secret file with more than one name.
type Links struct {
	Rel     string
	Aliases []string // other names inside the tree: they lead to the same bytes and need the same cover
	Outside uint64   // names that are not in the tree
}

// Result is what one scan found.
type Result struct {
	Protected    []Protected
	Pins         []string // every folder above a protected path, the root left out
	Secrets      []Secret
	Sockets      []Path
	Mounts       []string // folders on another mount than the folder above
	Repositories []Repository
	Todos        []string // rebase to-do lists, to be judged when the session ends
	Unreadable   []Unreadable
	Excluded     []string
	Links        []Links

	Entries int
	Folders int
	// SharedFolders counts folders of package stores whose first file is hard-linked; SharedFiles counts files and is
	// complete only with Config.CountLinks.
	SharedFolders int
	SharedFiles   int
	// Raced counts folders that were gone, or no folder any more, when they were opened.
	Raced int
}

// ErrLimit is what every LimitError matches.
var ErrLimit = errors.New("tree is over a scan limit")

// LimitError names what was too much, where, and what a person can do.
type LimitError struct {
	What   string // "entries", "depth", "mounts"
	Root   string
	Folder string // the folder to exclude
	At     string // where the walk stood; for "depth" the first folder that is too deep
	Max    int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("scan of %s: more than %d %s, most in %q: add that folder to scan.exclude", e.Root, e.Max, e.What, shorten(e.Folder))
}

// Is makes every LimitError match ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// shorten keeps a hostile path out of the way of the message.
func shorten(path string) string {
	const most = 200
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}

// Covers is the number of mounts that the findings need.
func (r *Result) Covers() int {
	return len(r.Protected) + len(r.Pins) + len(r.Secrets) + len(r.Sockets)
}

func (r *Result) add(o *Result) {
	r.Protected = append(r.Protected, o.Protected...)
	r.Secrets = append(r.Secrets, o.Secrets...)
	r.Sockets = append(r.Sockets, o.Sockets...)
	r.Mounts = append(r.Mounts, o.Mounts...)
	r.Repositories = append(r.Repositories, o.Repositories...)
	r.Todos = append(r.Todos, o.Todos...)
	r.Unreadable = append(r.Unreadable, o.Unreadable...)
	r.Excluded = append(r.Excluded, o.Excluded...)
	r.Links = append(r.Links, o.Links...)
	r.Entries += o.Entries
	r.Folders += o.Folders
	r.SharedFolders += o.SharedFolders
	r.SharedFiles += o.SharedFiles
	r.Raced += o.Raced
}

// finish sorts the findings and derives the pins.
func (r *Result) finish() {
	r.Protected = unique(r.Protected, func(p Protected) string { return p.Rel })
	r.Secrets = unique(r.Secrets, func(s Secret) string { return s.Rel })
	r.Sockets = unique(r.Sockets, func(p Path) string { return p.Rel })
	r.Repositories = unique(r.Repositories, func(p Repository) string { return p.Rel })
	r.Unreadable = unique(r.Unreadable, func(u Unreadable) string { return u.Rel })
	r.Links = unique(r.Links, func(l Links) string { return l.Rel })
	itself := func(rel string) string { return rel }
	r.Mounts, r.Todos, r.Excluded = unique(r.Mounts, itself), unique(r.Todos, itself), unique(r.Excluded, itself)
	seen := map[string]bool{}
	r.Pins = nil
	for _, p := range r.Protected {
		for rel := p.Rel; ; {
			i := strings.LastIndexByte(rel, '/')
			if i < 0 || seen[rel[:i]] {
				break
			}
			rel = rel[:i]
			seen[rel] = true
			r.Pins = append(r.Pins, rel)
		}
	}
	slices.Sort(r.Pins)
}

// unique sorts by path; a sweep can meet one path twice, through its own event and through a walk from above.
func unique[T any](list []T, key func(T) string) []T {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return slices.CompactFunc(list, func(a, b T) bool { return key(a) == key(b) })
}

// crowded names the top-level folder with most of the findings that need a mount.
func (r *Result) crowded() string {
	count := map[string]int{}
	most, name := 0, "."
	note := func(rel string) {
		top, _, _ := strings.Cut(rel, "/")
		if count[top]++; count[top] > most {
			most, name = count[top], top
		}
	}
	for _, p := range r.Protected {
		note(p.Rel)
	}
	for _, rel := range r.Pins {
		note(rel)
	}
	for _, s := range r.Secrets {
		note(s.Rel)
	}
	for _, s := range r.Sockets {
		note(s.Rel)
	}
	return name
}
