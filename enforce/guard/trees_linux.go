package guard

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Trees says what is protected and hidden. It is called once, before the first command; on an error nothing counts as
// guarded. Trees that are Own, and what of a tree is a mount of its own, are roots too.
func (s *Session) Trees(trees []enforce.Tree) error {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.closed.Load() || s.trees != nil {
		return errors.New("guard: the trees of a session are told once, while it is open")
	}
	if len(trees) >= 1<<15 {
		return fmt.Errorf("guard: %d trees", len(trees))
	}
	s.trees = slices.Clone(trees)
	school := g.openSchool()
	var err error
	for i, t := range s.trees {
		if err = s.tree(school, i, t); err != nil {
			err = fmt.Errorf("guard tree %q: %w", t.Path, err)
			break
		}
	}
	if err = errors.Join(err, school.close()); err == nil {
		err = g.objects.Groups.Put(s.group, s.value)
	}
	if err != nil {
		return errors.Join(err, s.forget())
	}
	return nil
}

// tree writes what the programs must know about one tree. Of a tree that is not live, or that the session may not write,
// only what is hidden counts: nothing is changed there.
func (s *Session) tree(c *school, number int, t enforce.Tree) error {
	root, err := unix.Open(t.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.kept = append(s.kept, os.NewFile(uintptr(root), t.Path))
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return err
	}
	if !t.Own && (uint64(st.Dev) != t.Device || st.Ino != t.Inode) {
		return errors.New("another file than a moment ago")
	}
	m := mark{Tree: uint16(number), State: free, Base: free, Kinds: kindRoot}
	if t.Own || t.File {
		if t.File && (!t.Writable || t.Stage != "") {
			return nil
		}
		return s.mark(c, root, "", m)
	}
	if err := s.inodes(c, root, t); err != nil {
		return err
	}
	live := t.Writable && t.Stage == ""
	plan, err := s.guard.machine.planOf(withNested(t, s.trees, live))
	if err != nil {
		return err
	}
	if len(t.MaskDirs) > 0 {
		s.value.Flags |= flagHidesFolders
	}
	if live && t.Sealed {
		s.value.Flags |= flagSealed
	}
	if !live {
		return nil
	}
	if err := s.write(plan); err != nil {
		return err
	}
	m.State, m.Base = plan.root.id, plan.root.base
	if err := s.mark(c, root, "", m); err != nil {
		return err
	}
	return s.mounts(c, number, t, plan)
}

// withNested lifts the trees inside the tree that a person named: --write of a protected name.
func withNested(t enforce.Tree, all []enforce.Tree, live bool) enforce.Tree {
	if !live {
		return t
	}
	t.Lifted = slices.Clone(t.Lifted)
	for _, o := range all {
		if rel, inside := strings.CutPrefix(o.Path, t.Path+"/"); inside && o.Writable && o.File {
			t.Lifted = append(t.Lifted, rel)
		}
	}
	return t
}

// write puts the plan's own states into the kernel.
func (s *Session) write(p *plan) error {
	objects := &s.guard.objects
	if err := s.guard.writeNames(); err != nil {
		return err
	}
	put := func(e edge, st step) error {
		s.edges = append(s.edges, e)
		return objects.Edges.Put(e, st)
	}
	for e, st := range p.edges() {
		if err := put(e, st); err != nil {
			return fmt.Errorf("a name to watch: %w", err)
		}
	}
	for c := range p.leaves {
		e := edge{leavesState | s.id, c}
		if slices.Contains(s.edges, e) {
			continue
		}
		if err := put(e, step{}); err != nil {
			return err
		}
	}
	return nil
}

// inodes marks what is hidden and, in a live tree, what is protected and pinned.
func (s *Session) inodes(c *school, root int, t enforce.Tree) error {
	type list struct {
		rels  []string
		kinds uint8
	}
	lists := []list{{t.Masks, kindHide}, {t.MaskDirs, kindHide}}
	if t.Writable && t.Stage == "" {
		lists = append(lists, list{t.Protected, kindKeep}, list{t.Pins, kindPin})
	}
	for _, l := range lists {
		for _, rel := range l.rels {
			// What is gone has no inode that could be reached; its name stays watched.
			if err := s.mark(c, root, rel, mark{Kinds: l.kinds}); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// mark writes what an inode is, besides what it is already.
func (s *Session) mark(c *school, root int, rel string, m mark) error {
	l, err := c.find(root, rel)
	if err != nil {
		return err
	}
	key := markKey{Ino: l.Ino, Dev: l.Dev, Session: s.id}
	var old mark
	if s.guard.objects.Marks.Lookup(key, &old) == nil {
		m.Kinds |= old.Kinds
		if old.Kinds&kindRoot != 0 {
			old.Kinds = m.Kinds
			m = old
		}
	} else {
		s.marks = append(s.marks, key)
	}
	if m.Kinds&kindRoot != 0 && m.Inode == 0 {
		m.Inode = l.Inode
	}
	return s.guard.objects.Marks.Put(key, m)
}

// find asks about a path below root, which must not lead through a link: the scan found none on the way.
func (s *school) find(root int, rel string) (lesson, error) {
	if rel == "" {
		return s.ask(root, "")
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(root, rel, &how)
	if err != nil {
		return lesson{}, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	defer unix.Close(fd)
	return s.ask(fd, "")
}

// mounts makes roots of the mounts inside a tree: the way up from a file in one ends at its own root.
func (s *Session) mounts(c *school, number int, t enforce.Tree, p *plan) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, at := range mountsBelow(string(data), t.Path) {
		if slices.ContainsFunc(s.trees, func(o enforce.Tree) bool { return o.Path == at || o.Own && strings.HasPrefix(at, o.Path+"/") }) {
			continue
		}
		rel := strings.TrimPrefix(at, t.Path+"/")
		fd, err := unix.Open(at, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open mount", Path: at, Err: err}
		}
		s.kept = append(s.kept, os.NewFile(uintptr(fd), at))
		state, base, meaning := p.enter(rel)
		m := mark{State: state, Base: base, Tree: uint16(number), Kinds: kindRoot}
		if meaning&(always|hidden|hooks|honest) != 0 {
			m.Kinds |= kindKeep
		}
		if meaning&hidden != 0 {
			m.Kinds |= kindHide
		}
		if err := s.mark(c, fd, "", m); err != nil {
			return err
		}
	}
	return nil
}

// mountsBelow lists the mount points inside a folder (proc_pid_mountinfo(5)).
func mountsBelow(mountInfo, dir string) []string {
	var list []string
	for line := range strings.Lines(mountInfo) {
		f := strings.Split(line, " ")
		if len(f) < 6 {
			continue
		}
		if at := unescape(f[4]); strings.HasPrefix(at, dir+"/") {
			list = append(list, path.Clean(at))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// mountOf finds a mount by its id: which part of its file system it shows, and where.
func mountOf(id int) (root, at string, err error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, " ")
		if len(f) > 5 && f[0] == strconv.Itoa(id) {
			return unescape(f[3]), unescape(f[4]), nil
		}
	}
	return "", "", fmt.Errorf("guard: mount %d is not in the mount table", id)
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
