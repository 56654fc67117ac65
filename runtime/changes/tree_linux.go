package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"coworker/platform/workfs"
)

// tree is one staged tree, open.
type tree struct {
	meta    metaTree
	path    string
	dir     string
	host    *workfs.Root
	upper   *workfs.Root
	undo    *workfs.Root
	hold    *workfs.Root
	rootDev uint64
	mount   workfs.Mount

	base map[string]stamp  // the host as it was when the session began, and as each apply left it
	ours map[string]bool   // brought by an apply where nothing stood
	seen map[string]string // which state of a session's path was dealt with; see identity

	masked    map[string]bool // files that the session did not see
	maskDirs  []string
	protected map[string]bool // paths that the session could not write, besides those of the rules
}

// The states of a session's path that have no inode.
const (
	seenGone   = "gone"
	seenFolder = "folder"
)

// identity names one state of a file in the upper folder: the kernel sets the change time.
func identity(u workfs.Info) string {
	if u.Kind == workfs.Directory {
		return seenFolder
	}
	return fmt.Sprintf("%d.%d.%d.%d", u.Kind, u.Ino, u.Size, u.Change.UnixNano())
}

// load opens the trees, deals with what an interrupted process left, and learns what was applied.
func (st *Stage) load() (err error) {
	if st.trees != nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.unload())
		}
	}()
	for _, m := range st.meta.Trees {
		t, err := st.openTree(m)
		if t != nil {
			st.trees = append(st.trees, t)
		}
		if err != nil {
			return fmt.Errorf("staged folder %s: %w", m.Path, err)
		}
	}
	return st.replay()
}

func (st *Stage) openTree(m metaTree) (t *tree, err error) {
	t = &tree{meta: m, path: string(m.Path), dir: st.treeDir(m), seen: map[string]string{}, ours: map[string]bool{}, masked: map[string]bool{}, protected: map[string]bool{}}
	for _, rel := range m.Masks {
		t.masked[string(rel)] = true
	}
	for _, rel := range m.Protected {
		t.protected[string(rel)] = true
	}
	for _, rel := range m.MaskDirs {
		t.maskDirs = append(t.maskDirs, string(rel))
	}
	for _, f := range []struct {
		root **workfs.Root
		path string
	}{{&t.host, t.path}, {&t.upper, filepath.Join(t.dir, upperFolder)}, {&t.undo, filepath.Join(t.dir, undoFolder)}, {&t.hold, filepath.Join(t.dir, holdFolder)}} {
		if *f.root, err = workfs.OpenRoot(f.path); err != nil {
			return t, err
		}
	}
	info, err := t.host.Stat()
	if err != nil {
		return t, err
	}
	// A restart can give a file system another number; a folder keeps its own.
	if m.Inode != 0 && info.Ino != m.Inode {
		return t, ErrMoved
	}
	t.rootDev = info.Dev
	top, err := t.host.OpenDir(".")
	if err != nil {
		return t, err
	}
	defer top.Close()
	if t.mount, _, err = top.Mount(); err != nil {
		return t, err
	}
	t.base, err = readBase(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the session did not get as far as to record the folder: %w", ErrTorn)
	}
	return t, err
}

func (st *Stage) unload() error {
	var errs []error
	for _, t := range st.trees {
		for _, r := range []*workfs.Root{t.host, t.upper, t.undo, t.hold} {
			if r != nil {
				errs = append(errs, r.Close())
			}
		}
	}
	st.trees = nil
	return errors.Join(errs...)
}

// hostMounted says whether a folder is on the tree's own mount: what is mounted over a folder was not in the overlay.
func (t *tree) hostMounted(d *workfs.Dir) bool {
	m, _, err := d.Mount()
	return err == nil && m == t.mount
}

// underMask says whether the session could not see a path because it is, or is in, a hidden one.
func (t *tree) underMask(rel string) bool {
	if t.masked[rel] {
		return true
	}
	for _, dir := range t.maskDirs {
		if rel == dir || strings.HasPrefix(rel, dir+"/") {
			return true
		}
	}
	return false
}

// kept says whether a path is, or is in, one that the walls kept as it was.
func (t *tree) kept(rel string) bool {
	for at := rel; ; {
		if t.protected[at] {
			return true
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return false
		}
		at = at[:i]
	}
}

// view is the tree as the session left it.
type view struct{ t *tree }

// Name is where the tree lies.
func (v view) Name() string { return v.t.path }

// Lstat looks at the session's version, else at the host's.
func (v view) Lstat(rel string) (workfs.Info, error) {
	root, err := v.where(rel)
	if err != nil {
		return workfs.Info{}, err
	}
	return root.Lstat(rel)
}

// ReadFile reads the session's version, else the host's.
func (v view) ReadFile(rel string, max int64) ([]byte, workfs.Info, error) {
	root, err := v.where(rel)
	if err != nil {
		return nil, workfs.Info{}, err
	}
	return root.ReadFile(rel, max)
}

func (v view) where(rel string) (*workfs.Root, error) {
	gone := &os.PathError{Op: "lstat", Path: rel, Err: fs.ErrNotExist}
	for end := 0; end < len(rel); end++ {
		if i := strings.IndexByte(rel[end:], '/'); i >= 0 {
			end += i
		} else {
			end = len(rel)
		}
		info, err := v.t.upper.Lstat(rel[:end])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return v.t.host, nil
		case err != nil:
			return nil, err
		case info.Whiteout():
			return nil, gone
		case end == len(rel):
			return v.t.upper, nil
		case info.Kind != workfs.Directory:
			return nil, gone
		}
		d, name, err := v.t.upper.Parent(rel[:end])
		if err != nil {
			return nil, err
		}
		x, _, err := d.Xattrs(name)
		d.Close()
		if err != nil {
			return nil, err
		}
		if string(x[opaqueXattr]) == "y" {
			if _, err := v.t.upper.Lstat(rel); err != nil {
				return nil, gone
			}
			return v.t.upper, nil
		}
	}
	return v.t.upper, nil
}
