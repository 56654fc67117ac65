package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"coworker/platform/workfs"
)

// seenHeld begins the state of a path that went to the held files.
const seenHeld = "held "

// file compares a regular file or symlink of the session with what the host has.
func (s *scan) file(n *node, e entry) error {
	id := identity(e.info)
	if was := s.t.seen[e.rel]; was == id || was == seenHeld+id {
		return nil
	}
	want, left := e.wanted()
	c := &Change{Rel: e.rel, Kind: Added, Verdict: Clean, Type: e.info.Kind.String(), NewMode: want.Mode, NewSize: e.info.Size, Note: left}
	c.plan = step{act: put, upper: id, want: want}
	if e.info.Kind == workfs.Symlink {
		target, err := n.up.Readlink(e.name)
		if err != nil {
			return err
		}
		c.Target, c.NewMode = target, 0
	}
	if _, partly := e.x[metacopyXattr]; partly {
		c.Verdict, c.Reason = LeftOut, "its content is not in the upper folder"
	}
	if e.host == nil {
		return s.judge(n, e, c)
	}
	old := stampOf(*e.host, s.t.rootDev)
	c.plan.old, c.OldMode, c.OldSize = &old, e.host.Mode, e.host.Size
	if e.host.Kind != e.info.Kind {
		c.Kind = Retyped
		return s.retype(n, e, c)
	}
	equal, err := s.equal(n, e, c)
	if err != nil {
		return err
	}
	if !equal {
		c.Kind = Modified
		return s.judge(n, e, c)
	}
	have, err := hostAttrs(n.host, e.name, *e.host)
	if err != nil {
		return err
	}
	if e.info.Kind == workfs.Symlink || have.same(want) && left == "" {
		s.set.Same++
		return nil
	}
	if have.same(want) { // the bits that differ are the ones never applied
		c.Kind, c.Verdict, c.Reason = Mode, LeftOut, left
		return s.add(n, c)
	}
	c.Kind = Mode
	if e.host.Nlink == 1 { // else the other names would change with it, which they did not inside
		c.plan.act = set
	}
	if have.Mode == want.Mode {
		c.Note = joinNotes("times or attributes only", c.Note)
	}
	return s.judge(n, e, c)
}

func joinNotes(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// equal compares content, or where a symlink leads.
func (s *scan) equal(n *node, e entry, c *Change) (bool, error) {
	if e.info.Kind == workfs.Symlink {
		theirs, err := n.host.Readlink(e.name)
		return theirs == c.Target, err
	}
	if e.info.Size != e.host.Size || c.Verdict == LeftOut {
		return false, nil
	}
	ours, _, err := n.up.OpenForced(e.name)
	if err != nil {
		return false, err
	}
	defer ours.Close()
	theirs, _, err := n.host.Open(e.name)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, workfs.ErrKind) {
		return false, nil // unreadable on the host: taken for different
	}
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	return s.equalData(ours, theirs, e.info.Size)
}

// equalData reads two files of one size. Where both have a hole nothing is read.
func (s *scan) equalData(a, b *os.File, size int64) (bool, error) {
	const chunk = 256 << 10
	x, y := make([]byte, chunk), make([]byte, chunk)
	for off := int64(0); off < size; {
		if err := s.ctx.Err(); err != nil {
			return false, err
		}
		off = min(nextData(a, off, size), nextData(b, off, size))
		n := min(chunk, size-off)
		if n <= 0 {
			break
		}
		_, errA := a.ReadAt(x[:n], off)
		_, errB := b.ReadAt(y[:n], off)
		if errA == io.EOF || errB == io.EOF {
			return false, nil // one was made shorter meanwhile
		}
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
		off += n
	}
	return true, nil
}

// seekData is SEEK_DATA of lseek(2).
const seekData = 3

func nextData(f *os.File, off, size int64) int64 {
	at, err := f.Seek(off, seekData)
	if errors.Is(err, syscall.ENXIO) {
		return size
	}
	if err != nil {
		return off
	}
	return at
}

func hostAttrs(d *workfs.Dir, name string, info workfs.Info) (attrs, error) {
	x, _, err := d.Xattrs(name)
	if err != nil {
		return attrs{}, err
	}
	if len(x) == 0 {
		x = nil
	}
	return attrs{Mode: info.Mode, Mtime: info.ModTime.UnixNano(), User: x}, nil
}

// retype is a file where the host has something else. A folder goes with all that is in it, so that is judged first.
func (s *scan) retype(n *node, e entry, c *Change) error {
	if e.host.Kind != workfs.Directory {
		return s.judge(n, e, c)
	}
	before := len(s.set.Changes)
	if err := s.emptied(n, e.name); err != nil {
		return err
	}
	c.plan.first, c.plan.old = rmdir, nil
	for i := range s.set.Changes[before:] {
		s.set.Changes[before+i].plan.room = true
	}
	if why := stays(s.set.Changes[before:]); why != "" && c.Verdict == Clean {
		c.Verdict, c.Reason = LeftOut, why
	}
	return s.judge(n, e, c)
}

// stays says that something in a folder that should go is not deleted.
func stays(list []Change) string {
	for i := range list {
		if list[i].Verdict != Clean {
			return fmt.Sprintf("the folder there holds %q, which stays", list[i].Rel)
		}
	}
	return ""
}

// dir compares a folder of the session with what the host has, and goes on in it.
func (s *scan) dir(n *node, e entry) error {
	want, left := e.wanted()
	c := &Change{Rel: e.rel, Kind: Made, Verdict: Clean, Type: e.info.Kind.String(), NewMode: want.Mode, Note: left}
	c.plan = step{act: mkdir, upper: seenFolder, want: want}
	sub := &node{rel: e.rel, state: e.state, rule: n.rule, depth: n.depth + 1, block: n.block, fresh: true}
	sub.opaque = n.opaque || string(e.x[opaqueXattr]) == "y" // below it nothing of the host shows through
	if sub.rule == nil {
		sub.rule = e.rule
	}
	var err error
	switch {
	case e.host != nil && e.host.Kind == workfs.Directory:
		sub.fresh = false
		if err = s.both(n, e, sub, c); err != nil {
			return err
		}
	case e.host != nil:
		c.Kind, c.plan.first, c.OldMode = Retyped, remove, e.host.Mode
		old := stampOf(*e.host, s.t.rootDev)
		c.plan.old = &old
		err = s.judge(n, e, c)
	default:
		err = s.judge(n, e, c)
	}
	if err != nil || c.plan.whole {
		return err
	}
	if c.Verdict != Clean && sub.fresh && sub.block == "" {
		sub.block = fmt.Sprintf("the folder %q is not made", e.rel)
	}
	return s.descend(n, e, sub)
}

// both is a folder that both sides have.
func (s *scan) both(n *node, e entry, sub *node, c *Change) error {
	host, err := n.host.OpenDir(e.name)
	if errors.Is(err, fs.ErrPermission) {
		sub.block = "the folder on the host cannot be listed"
		return nil
	}
	if err != nil {
		return err
	}
	sub.host = host
	if !s.t.hostMounted(host) {
		sub.block = "on another mount than the staged folder"
		return nil
	}
	have, err := hostAttrs(n.host, e.name, *e.host)
	if err != nil {
		return err
	}
	have.Mtime = c.plan.want.Mtime // follows from what is done in it
	have.Mode &^= fs.ModeSetgid    // a folder's own is the person's: kept
	if have.same(c.plan.want) {
		return nil
	}
	old := stampOf(*e.host, s.t.rootDev)
	c.Kind, c.plan.act, c.plan.old, c.OldMode = Mode, set, &old, e.host.Mode
	c.plan.want.Mode |= e.host.Mode & fs.ModeSetgid
	if err := s.judge(n, e, c); err != nil {
		return err
	}
	c.Verdict = Clean // what is in it is judged by itself
	return nil
}

// descend goes into a folder of the session.
func (s *scan) descend(n *node, e entry, sub *node) error {
	left := func(why string) error {
		sub.close()
		return s.add(n, &Change{Rel: e.rel, Kind: Modified, Verdict: LeftOut, Reason: why, Type: e.info.Kind.String()})
	}
	if _, moved := e.x[redirectXattr]; moved {
		return left("shows another folder of the layer below")
	}
	if sub.depth > maxDepth {
		return left(fmt.Sprintf("deeper than %d folders", maxDepth))
	}
	up, err := n.up.OpenDirForced(e.name)
	if err != nil {
		return left("cannot be listed: " + err.Error())
	}
	sub.up = up
	return s.folder(sub)
}

// gone is a name that the session deleted.
func (s *scan) gone(n *node, name string) error {
	rel := workfs.Join(n.rel, name)
	h, err := hostLook(n.host, name)
	if errors.Is(err, fs.ErrPermission) {
		return s.add(n, &Change{Rel: rel, Kind: Deleted, Verdict: LeftOut, Reason: "cannot be looked at on the host", Type: workfs.Unknown.String()})
	}
	if err != nil || h == nil || s.t.seen[rel] == seenGone {
		return err
	}
	if h.Kind == workfs.Directory {
		before := len(s.set.Changes)
		if err := s.emptied(n, name); err != nil {
			return err
		}
		c := &Change{Rel: rel, Kind: Removed, Verdict: Clean, Type: h.Kind.String(), OldMode: h.Mode}
		old := stampOf(*h, s.t.rootDev)
		c.plan = step{act: rmdir, upper: seenGone, old: &old}
		if why := stays(s.set.Changes[before:]); why != "" {
			c.Verdict, c.Reason, c.plan.waits = LeftOut, why, true
		}
		return s.judgeGone(n, name, *h, c)
	}
	c := &Change{Rel: rel, Kind: Deleted, Verdict: Clean, Type: h.Kind.String(), OldMode: h.Mode, OldSize: h.Size}
	old := stampOf(*h, s.t.rootDev)
	c.plan = step{act: remove, upper: seenGone, old: &old}
	return s.judgeGone(n, name, *h, c)
}

// emptied is everything in a folder of the host that the session deleted.
func (s *scan) emptied(n *node, name string) error {
	c, err := s.hostChild(n, name)
	if err != nil {
		return err
	}
	if c == nil {
		return s.add(n, &Change{Rel: workfs.Join(n.rel, name), Kind: Removed, Verdict: LeftOut, Reason: "the folder on the host cannot be listed", Type: workfs.Directory.String()})
	}
	defer c.close()
	theirs, err := s.entries(c.host)
	if err != nil {
		return err
	}
	s.layout(c, nil, theirs)
	for _, e := range theirs {
		if err := s.gone(c, e.Name); err != nil {
			return err
		}
	}
	return nil
}
