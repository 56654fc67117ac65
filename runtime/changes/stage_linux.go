package changes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"coworker/enforce"
	"coworker/platform/atomicfile"
	"coworker/platform/filelock"
	"coworker/platform/workfs"
	"coworker/runtime/held"
)

const (
	metaName    = "meta.json"
	lockName    = "lock"
	journalDir  = "journal"
	maxStages   = 100_000
	maxMeta     = 64 << 20
	upperFolder = "upper"
	workFolder  = "work"
	undoFolder  = "undo"
	holdFolder  = "hold"
)

// stageBounds limit the removal of a stage: what is in it was written by the session.
var stageBounds = workfs.Bounds{Entries: 20_000_000, Depth: 4096, Bytes: 1 << 62}

// sessionName is what becomes a folder name.
var sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Options are the parts of an apply or undo that only the caller can bring.
type Options struct {
	// Resolve answers a conflict; nil leaves every one.
	Resolve func(Change) Resolution
	// Hold takes protected and secret files; nil leaves them in the stage, reported.
	Hold *held.Store
	Now  time.Time
}

// Store is the folder of all staged sessions of one person.
type Store struct{ dir string }

// Stage is one staged session. Whoever has it holds its lock until Close.
type Stage struct {
	dir   string
	lock  *os.File
	meta  meta
	trees []*tree // open, once load was called
	next  int     // number of the next journal
	seq   int64   // of the last done or back line
	// finished names an interrupted apply or undo that load dealt with.
	finished string
	trip     func(point string) // tests end the process here
}

// meta is what a stage knows about itself.
type meta struct {
	Session   string     `json:"session"`
	Workspace string     `json:"workspace"`
	UID       int        `json:"uid"`
	GID       int        `json:"gid"`
	Created   time.Time  `json:"created"`
	Ended     time.Time  `json:"ended,omitzero"`
	Trees     []metaTree `json:"trees"`
}

// metaTree is one staged tree. Paths are bytes, and JSON strings are Unicode.
type metaTree struct {
	Index     int      `json:"index"` // in the request
	Path      []byte   `json:"path"`
	Inode     uint64   `json:"inode"`
	Masks     [][]byte `json:"masks,omitempty"`
	MaskDirs  [][]byte `json:"mask_dirs,omitempty"`
	Protected [][]byte `json:"protected,omitempty"`
}

// OpenStore opens the folder and makes it where it is not there.
func OpenStore(dir string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("folder of staged sessions %q: not an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := workfs.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat()
	if err == nil && (info.UID != uint32(os.Geteuid()) || info.Mode.Perm()&0o022 != 0) {
		err = fmt.Errorf("%s has mode %v and owner %d: only user %d may write there", dir, info.Mode, info.UID, os.Geteuid())
	}
	if err != nil {
		return nil, err
	}
	return &Store{dir: filepath.Clean(dir)}, nil
}

// Close releases the store.
func (s *Store) Close() error { return nil }

// Create makes the stage of a session that is about to start, and locks it.
func (s *Store) Create(ctx context.Context, r Request) (st *Stage, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !sessionName.MatchString(r.Session) {
		return nil, fmt.Errorf("session %q: not a name for a folder", r.Session)
	}
	dir := filepath.Join(s.dir, r.Session)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	m := meta{Session: r.Session, Workspace: r.Workspace, UID: r.UID, GID: r.GID, Created: r.Now.UTC()}
	st = &Stage{dir: dir, meta: m, next: 1}
	if st.lock, err = lockFile(dir); err != nil {
		return nil, err
	}
	for i, t := range r.Trees {
		if !t.Writable || t.File {
			continue
		}
		if err := st.addTree(i, t); err != nil {
			return nil, errors.Join(fmt.Errorf("stage %s: %w", t.Path, err), st.Close())
		}
	}
	if err := os.Mkdir(filepath.Join(dir, journalDir), 0o700); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if err := st.writeMeta(); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// addTree makes the folders of one tree. What the session's user must write in belongs to them; the rest is ours.
func (st *Stage) addTree(index int, t enforce.Tree) error {
	info, err := os.Stat(t.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(st.dir, strconv.Itoa(index))
	foreign := os.Geteuid() == 0 && st.meta.UID != 0
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, sub := range [...]string{upperFolder, workFolder, undoFolder, holdFolder} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
		if foreign {
			if err := os.Lchown(filepath.Join(dir, sub), st.meta.UID, st.meta.GID); err != nil {
				return err
			}
		}
	}
	if foreign { // they must reach what is theirs, and see nothing else
		if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(st.dir, 0o711)); err != nil {
			return err
		}
	}
	// The root of the overlay shows the mode and time of the upper folder.
	upper := filepath.Join(dir, upperFolder)
	if err := errors.Join(os.Chmod(upper, info.Mode().Perm()), os.Chtimes(upper, info.ModTime(), info.ModTime())); err != nil {
		return err
	}
	m := metaTree{Index: index, Path: []byte(t.Path), Inode: t.Inode}
	m.Masks, m.MaskDirs, m.Protected = byteList(t.Masks), byteList(t.MaskDirs), byteList(t.Protected)
	st.meta.Trees = append(st.meta.Trees, m)
	return nil
}

func byteList(list []string) (out [][]byte) {
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}

func (st *Stage) writeMeta() error {
	data, err := json.Marshal(st.meta)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(st.dir, metaName), append(data, '\n'))
}

func lockFile(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if !filelock.Within(f, 50*time.Millisecond) {
		f.Close()
		return nil, ErrBusy
	}
	return f, nil
}

func readMeta(dir string) (m meta, err error) {
	f, err := os.Open(filepath.Join(dir, metaName))
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	if info.Size() > maxMeta {
		return m, fmt.Errorf("%s: %d bytes: %w", metaName, info.Size(), ErrTorn)
	}
	if err := json.NewDecoder(f).Decode(&m); err != nil {
		return m, fmt.Errorf("%s of staged session %s: %w: %w", metaName, filepath.Base(dir), ErrTorn, err)
	}
	if m.Session != filepath.Base(dir) {
		return m, fmt.Errorf("%s of staged session %s names %q: %w", metaName, filepath.Base(dir), m.Session, ErrTorn)
	}
	return m, nil
}

// List describes every stage, oldest first.
func (s *Store) List() ([]Summary, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxStages {
		return nil, fmt.Errorf("%s holds %d staged sessions: %w", s.dir, len(entries), ErrLimit)
	}
	var list []Summary
	for _, e := range entries {
		if e.IsDir() && sessionName.MatchString(e.Name()) {
			list = append(list, s.summary(e.Name()))
		}
	}
	slices.SortStableFunc(list, func(a, b Summary) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Session, b.Session))
	})
	return list, nil
}

func (s *Store) summary(name string) Summary {
	dir := filepath.Join(s.dir, name)
	m, err := readMeta(dir)
	if err != nil {
		return Summary{Session: name, Problem: err.Error()}
	}
	sum := Summary{Session: name, Workspace: m.Workspace, Created: m.Created, Ended: m.Ended}
	if lock, err := lockFile(dir); err == nil {
		lock.Close()
	} else {
		sum.Live = errors.Is(err, ErrBusy)
	}
	logs, _ := journals(dir)
	for _, l := range logs {
		if !l.undone {
			sum.Applies++
		}
	}
	return sum
}

// Open locks a stage whose session has ended. An empty name is the newest.
func (s *Store) Open(session string) (*Stage, error) {
	if session == "" {
		list, err := s.List()
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(m Summary) bool { return m.Problem != "" })
		if len(list) == 0 {
			return nil, ErrNoStage
		}
		session = list[len(list)-1].Session
	}
	if !sessionName.MatchString(session) {
		return nil, fmt.Errorf("staged session %q: %w", session, ErrNoStage)
	}
	dir := filepath.Join(s.dir, session)
	m, err := readMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("staged session %q: %w", session, ErrNoStage)
	}
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(dir)
	if err != nil {
		return nil, fmt.Errorf("staged session %s: %w", session, err)
	}
	return &Stage{dir: dir, lock: lock, meta: m}, nil
}

// at is where tests end the process.
func (st *Stage) at(point string) {
	if st.trip != nil {
		st.trip(point)
	}
}

// Session is the stage's name.
func (st *Stage) Session() string { return st.meta.Session }

// Workspace is the folder that the session worked in.
func (st *Stage) Workspace() string { return st.meta.Workspace }

// Folder is the absolute path of the folder with upper and work of a tree of the request; empty for one that is not staged.
func (st *Stage) Folder(tree int) string {
	for _, m := range st.meta.Trees {
		if m.Index == tree {
			return st.treeDir(m)
		}
	}
	return ""
}

func (st *Stage) treeDir(m metaTree) string { return filepath.Join(st.dir, strconv.Itoa(m.Index)) }

// Ended says that the cell is dead and its overlay gone. A stage with nothing to apply and nothing to undo is removed.
func (st *Stage) Ended() error {
	logs, err := journals(st.dir)
	if err != nil {
		return err
	}
	if len(logs) == 0 && st.untouched() { // also where the session failed before its folders were recorded
		return st.Discard(context.Background())
	}
	if st.meta.Ended.IsZero() {
		st.meta.Ended = time.Now().UTC()
		if err := st.writeMeta(); err != nil {
			return err
		}
	}
	set, err := st.Changes(context.Background())
	if err != nil || len(set.Changes) > 0 || len(logs) > 0 {
		return err
	}
	return st.Discard(context.Background())
}

// untouched says that nothing was written in any upper folder.
func (st *Stage) untouched() bool {
	for _, m := range st.meta.Trees {
		d, err := os.Open(filepath.Join(st.treeDir(m), upperFolder))
		if err != nil {
			return false
		}
		names, err := d.Readdirnames(1)
		d.Close()
		if len(names) > 0 || !errors.Is(err, io.EOF) {
			return false
		}
	}
	return true
}

// Close releases the lock. The stage stays.
func (st *Stage) Close() error {
	err := st.unload()
	if st.lock != nil {
		err = errors.Join(err, st.lock.Close())
		st.lock = nil
	}
	return err
}

// Discard removes the stage with everything in it, what could be undone included, and releases it.
func (st *Stage) Discard(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := st.unload(); err != nil {
		return err
	}
	parent, err := workfs.OpenRoot(filepath.Dir(st.dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	// The record goes last: a removal that is interrupted leaves a stage that can be discarded again.
	name := filepath.Base(st.dir)
	for _, m := range st.meta.Trees {
		if err := parent.RemoveAll(name+"/"+strconv.Itoa(m.Index), stageBounds); err != nil {
			return err
		}
	}
	return errors.Join(parent.RemoveAll(name, stageBounds), st.Close())
}
