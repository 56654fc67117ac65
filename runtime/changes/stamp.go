package changes

import (
	"io/fs"
	"maps"
	"slices"

	"coworker/platform/workfs"
)

// stamp is what tells one state of a host path from another without reading it. A program can set everything but the
// change time, and that the kernel sets.
type stamp struct {
	Dev   uint64      `json:"d,omitempty"` // zero: that of the tree's root, whose number may differ after a restart
	Ino   uint64      `json:"i"`
	Kind  workfs.Kind `json:"k"`
	Mode  fs.FileMode `json:"m"`
	Size  int64       `json:"s,omitempty"`
	Mtime int64       `json:"t"`
	Ctime int64       `json:"c"`
	// Links is set for a file with several names. Each name that comes or goes changes its change time.
	Links bool `json:"l,omitempty"`
}

func stampOf(i workfs.Info, rootDev uint64) stamp {
	s := stamp{Ino: i.Ino, Kind: i.Kind, Mode: i.Mode, Size: i.Size, Mtime: i.ModTime.UnixNano(), Ctime: i.Change.UnixNano()}
	s.Links = i.Kind != workfs.Directory && i.Nlink > 1
	if i.Dev != rootDev {
		s.Dev = i.Dev
	}
	return s
}

// same says that nothing was done to the path. Of a folder only that it is one counts: its times change with its names.
func (s stamp) same(o stamp) bool {
	if s.Kind == workfs.Directory {
		return o.Kind == workfs.Directory
	}
	if s.Links || o.Links {
		return s.moved(o)
	}
	return s == o
}

// moved is same for a path that was renamed since, which changes the change time.
func (s stamp) moved(o stamp) bool {
	s.Ctime, s.Links = o.Ctime, o.Links
	return s == o
}

// attrs are what a file or folder has besides its content.
type attrs struct {
	Mode  fs.FileMode       `json:"m"`
	Mtime int64             `json:"t"`
	User  map[string][]byte `json:"x,omitempty"` // attributes user.*
}

func (a attrs) same(o attrs) bool {
	return a.Mode == o.Mode && a.Mtime == o.Mtime && maps.EqualFunc(a.User, o.User, slices.Equal)
}

// action is what an apply does to one path.
type action string

const (
	put    action = "put"   // a file or symlink, new or in place of another
	remove action = "del"   // a file or symlink
	mkdir  action = "mkdir" // with its final mode set at the end
	rmdir  action = "rmdir"
	set    action = "attr" // mode, times and attributes of a file or folder that stands
	note   action = "note" // nothing on the host: the session's version was held, or the person kept theirs
)

// step is how a change is applied.
type step struct {
	act   action
	phase int
	class int
	old   *stamp // the host path as it was looked at; nil if nothing stood there
	upper string // which state of the session's file this is
	want  attrs
	data  []byte // instead of the session's bytes
	first action // what must go before, where the kind of file changes
	whole bool   // hold the folder with everything in it
	waits bool   // left out only because something in the folder stays
	room  bool   // a deletion that makes room for another kind of file
}
