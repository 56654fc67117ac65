package changes

import (
	"cmp"
	"slices"
	"strings"
)

// The phases of an apply. Folders come before what is in them and go after it; everything that git only reads through a ref
// is there before the ref, and goes after it.
const (
	early    = iota // deletions that make room: another kind of file, or a name that differs in case only
	folders         // folders are made
	writes          // files are written
	deletes         // files are deleted
	emptied         // folders are removed
	finishes        // folders get their mode
)

// order sorts changes into the order in which they are done.
func order(list []Change) {
	names := map[string]bool{}
	for i := range list {
		if a := list[i].plan.act; a == put || a == mkdir {
			names[strings.ToLower(list[i].Rel)] = true
		}
	}
	for i := range list {
		c := &list[i]
		c.plan.phase = phaseOf(c)
		if gone := c.plan.act == remove || c.plan.act == rmdir; gone && (c.plan.room || makesRoom(names, c.Rel)) {
			c.plan.phase = early
		}
		c.plan.class = gitClass(c.Rel)
		if c.plan.phase == deletes {
			c.plan.class = -c.plan.class
		}
	}
	slices.SortStableFunc(list, func(a, b Change) int { return a.plan.compare(a.Rel, &b.plan, b.Rel) })
}

func phaseOf(c *Change) int {
	switch c.plan.act {
	case mkdir:
		return folders
	case remove:
		return deletes
	case rmdir:
		return emptied
	case set:
		if c.Type == "folder" {
			return finishes
		}
	}
	return writes
}

// makesRoom says that a path, or a folder above it, comes back under a name that a folding file system takes for the same.
func makesRoom(names map[string]bool, rel string) bool {
	for low := strings.ToLower(rel); ; {
		if names[low] {
			return true
		}
		i := strings.LastIndexByte(low, '/')
		if i < 0 {
			return false
		}
		low = low[:i]
	}
}

func (p *step) compare(rel string, o *step, other string) int {
	if p.phase != o.phase {
		return cmp.Compare(p.phase, o.phase)
	}
	if p.class != o.class && p.phase != folders && p.phase != emptied && p.phase != early && p.phase != finishes {
		return cmp.Compare(p.class, o.class)
	}
	if p.phase == early || p.phase == emptied || p.phase == finishes {
		return strings.Compare(other, rel) // what is in a folder before the folder
	}
	return strings.Compare(rel, other)
}

// gitClass ranks paths in repositories: objects, then what names them, then the index and HEAD, then the rest.
func gitClass(rel string) int {
	_, in, found := strings.Cut("/"+rel+"/", "/.git/")
	if !found {
		return 0
	}
	in = strings.TrimSuffix(in, "/")
	base := in[strings.LastIndexByte(in, '/')+1:]
	switch {
	case strings.HasPrefix(in, "objects/") || strings.Contains(in, "/objects/"):
		if strings.HasSuffix(base, ".idx") || strings.HasSuffix(base, ".midx") || base == "multi-pack-index" {
			return 2 // git finds a pack by its index
		}
		return 1
	case base == "packed-refs":
		return 3
	case strings.HasPrefix(in, "refs/") || strings.Contains(in, "/refs/") || strings.HasPrefix(in, "logs/") || strings.Contains(in, "/logs/"):
		return 4
	case base == "index" || base == "HEAD" || strings.HasSuffix(base, "_HEAD"):
		return 5
	}
	return 6
}
