package session

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"coworker/enforce"
	"coworker/enforce/probe"
)

// listing is what a folder looks like: everything that an attempt inside could change about it. The time of the last change
// of an inode is among it, which no call can set back.
type listing map[string]string

// list looks at a small folder of coworker's own.
func list(dir string) (listing, error) {
	l := listing{}
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		l[rel] = fmt.Sprintf("inode %d mode %o links %d owner %d:%d size %d written %d.%09d changed %d.%09d",
			st.Ino, st.Mode, st.Nlink, st.Uid, st.Gid, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		return err
	})
	return l, err
}

// differs names the first path that is not as it was.
func (l listing) differs(now listing) (rel string, differ bool) {
	names := slices.Sorted(maps.Keys(l))
	names = append(names, slices.Sorted(maps.Keys(now))...)
	for _, n := range names {
		if l[n] != now[n] {
			return n, true
		}
	}
	return "", false
}

// layers makes the folders that a staged scratch repository is written to.
func (sc *scratch) layers(spec enforce.Spec) (dir string, err error) {
	dir = filepath.Join(sc.base, "stage")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if userAttributes(dir) != nil { // tmpfs has them since Linux 6.6
		parent := filepath.Join(spec.HomeStore, "probe")
		if err := makeStore(parent, spec.Identity); err != nil {
			return "", err
		}
		removeStale(parent)
		if sc.stage, err = os.MkdirTemp(parent, scratchPrefix+strconv.Itoa(os.Getpid())+"-*"); err != nil {
			return "", err
		}
		dir = sc.stage
	}
	for _, d := range []string{dir, filepath.Join(dir, "upper"), filepath.Join(dir, "work")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return "", err
		}
		if os.Geteuid() == 0 && spec.Identity.UID != 0 {
			if err := os.Lchown(d, spec.Identity.UID, spec.Identity.GID); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// watchOutside notes what the repository looks like before anything inside sees it, with a socket of the host's in it.
func (sc *scratch) watchOutside(t *probe.Targets, id enforce.Identity) (err error) {
	t.WorkspaceSocket = filepath.Join(sc.tree.Path, "socket")
	if sc.socket, err = net.Listen("unix", t.WorkspaceSocket); err != nil {
		return err
	}
	if err := sc.give(t.WorkspaceSocket, id); err != nil {
		return err
	}
	sc.before, err = list(sc.tree.Path)
	return err
}

// judgeStaged decides about attempts on protected names that worked inside: in a staged session they may, on the copy. They
// were stopped if the repository outside is what it was before, to the last change of an inode.
func (sc *scratch) judgeStaged(probes []enforce.Probe) []enforce.Probe {
	now, err := list(sc.tree.Path)
	verdict, detail := enforce.Stopped, "changed the copy only, the folder outside is as it was"
	if err != nil {
		verdict, detail = enforce.Inconclusive, "look at the folder outside: "+err.Error()
	} else if rel, differ := sc.before.differs(now); differ {
		verdict, detail = enforce.Leaked, fmt.Sprintf("%q outside was %q and is %q", rel, sc.before[rel], now[rel])
	}
	for i, p := range probes {
		if p.Wall == enforce.FSProtect && p.Where == "inside" && p.Got == enforce.Leaked {
			probes[i].Got, probes[i].Detail = verdict, p.Detail+"; "+detail
		}
	}
	return probes
}

// removeScratch removes a folder of a scratch repository. Overlay takes all rights from the folder in which it works.
func removeScratch(dir string) error {
	for _, work := range []string{"work/work", "stage/work/work"} {
		os.Chmod(filepath.Join(dir, work), 0o700) // an error shows when the folder is removed
	}
	return os.RemoveAll(dir)
}
