package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"coworker/platform/workfs"
)

// worker does the steps of one journal. run is nil where an interrupted one is finished.
type worker struct {
	st  *Stage
	j   *journal
	run *run
}

// slot is the place of one step: an open folder of the host and a name in it.
type slot struct {
	t    *tree
	dir  *workfs.Dir
	name string
}

// slot opens the folder of a step's path. It follows no link and stays on the tree's mount.
func (x *worker) slot(o *op) (*slot, error) {
	t := x.st.trees[o.T]
	dir, name, err := t.host.Parent(o.rel())
	if err != nil {
		return nil, err
	}
	if !t.hostMounted(dir) {
		dir.Close()
		return nil, fmt.Errorf("on another mount than the staged folder: %w", workfs.ErrCrossDevice)
	}
	info, err := dir.Stat()
	if err == nil && info.Mode&0o300 != 0o300 {
		// The session worked in a folder that may not be written: it gets its mode back at the end, which is planned.
		_ = t.host.Chmod(parentOf(o.rel()), info.Mode|0o700)
	}
	return &slot{t, dir, name}, nil
}

func parentOf(rel string) string {
	for i := len(rel) - 1; i >= 0; i-- {
		if rel[i] == '/' {
			return rel[:i]
		}
	}
	return "."
}

func (s *slot) close() { s.dir.Close() }

// stamp is how a name in the slot's folder stands; nil if it does not.
func (s *slot) stamp(name string) (*stamp, error) {
	info, err := s.dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st := stampOf(info, s.t.rootDev)
	return &st, nil
}

// unchanged refuses a path that is not as it was planned for.
func (s *slot) unchanged(old *stamp) error {
	now, err := s.stamp(s.name)
	switch {
	case err != nil:
		return err
	case now == nil && old == nil:
		return nil
	case now == nil || old == nil || !old.same(*now):
		return errEdited
	}
	return nil
}

// batch does the next steps: a run of files together, since making them durable together is cheaper, or one other step.
func (x *worker) batch(ops []*op) (int, error) {
	if ops[0].Act != put {
		return 1, x.single(ops[0])
	}
	var size int64
	n := 0
	ready := make([]*op, 0, batchOps)
	for n < len(ops) && n < batchOps && size < batchBytes && ops[n].Act == put {
		o := ops[n]
		n++
		wrote, err := x.prepare(o)
		if err != nil {
			if err := x.outcome(o, err); err != nil {
				return n, err
			}
			continue
		}
		size += wrote
		ready = append(ready, o)
	}
	x.st.at("prepared")
	if err := x.durable(ready); err != nil {
		return n, err
	}
	for _, o := range ready {
		if err := x.outcome(o, x.commit(o)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// outcome passes a step's error on to the result, and stops the apply only where going on makes no sense.
func (x *worker) outcome(o *op, err error) error {
	var torn *journalError
	if errors.As(err, &torn) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("apply %q: %w", o.rel(), err)
	}
	if x.run == nil {
		return nil
	}
	if err != nil {
		x.run.failed(o, err)
		return nil
	}
	x.run.succeeded(o)
	return nil
}

// journalError is a record that cannot be written: nothing more may be done.
type journalError struct{ err error }

func (e *journalError) Error() string { return "the journal: " + e.err.Error() }
func (e *journalError) Unwrap() error { return e.err }

func (x *worker) write(l line) error {
	if err := x.j.write(l); err != nil {
		return &journalError{err}
	}
	return nil
}

// done records how the path stands after a step. Where somebody else's file stands there already, the record names ours, so
// that theirs is never taken for it.
func (x *worker) done(o *op, s *slot, back bool) error {
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if o.expect != 0 && (now == nil || now.Ino != o.expect) {
		now = &stamp{Ino: o.expect}
	}
	if o.leavesNothing(back) {
		now = nil
	}
	if err := x.st.did(x.j, o, back, now); err != nil {
		return &journalError{err}
	}
	x.st.at("done")
	return nil
}

// asWas records the change time of a file that was moved away and back, so that it is not taken for edited.
func (x *worker) asWas(o *op, s *slot) error {
	now, err := s.stamp(s.name)
	if err != nil || now == nil || o.Old == nil || !o.Old.moved(*now) {
		return err
	}
	if err := x.st.record(x.j, line{K: "as-was", N: o.N, New: now}); err != nil {
		return &journalError{err}
	}
	return nil
}

func (x *worker) durable(ready []*op) error {
	trees := map[int]bool{}
	for _, o := range ready {
		trees[o.T] = true
	}
	for i := range trees {
		if err := x.st.trees[i].host.SyncFS(); err != nil {
			return err
		}
	}
	return nil
}

// syncAll makes everything durable at the end.
func (x *worker) syncAll() error {
	for _, t := range x.st.trees {
		if err := errors.Join(t.host.SyncFS(), t.undo.SyncFS()); err != nil {
			return err
		}
	}
	return nil
}

// single does a step that is no file.
func (x *worker) single(o *op) error {
	if o.Act == note {
		if err := x.st.did(x.j, o, false, nil); err != nil {
			return &journalError{err}
		}
		return x.outcome(o, nil)
	}
	if o.Act == set && o.rel() == "." {
		return x.outcome(o, x.setRoot(o, *o.Want))
	}
	s, err := x.slot(o)
	if err != nil {
		return x.outcome(o, err)
	}
	defer s.close()
	switch o.Act {
	case remove:
		err = x.remove(o, s)
	case mkdir:
		err = x.mkdir(o, s)
	case rmdir:
		err = x.rmdir(o, s)
	case set:
		err = x.set(o, s)
	default:
		err = fmt.Errorf("step %q: %w", o.Act, ErrTorn)
	}
	return x.outcome(o, err)
}

func (x *worker) mkdir(o *op, s *slot) error {
	if err := s.unchanged(nil); err != nil {
		return err
	}
	if err := s.dir.Mkdir(s.name, 0o700); err != nil {
		return err
	}
	if err := s.dir.Chmod(s.name, o.Want.Mode|0o700); err != nil {
		return err
	}
	return x.done(o, s, false)
}

func (x *worker) rmdir(o *op, s *slot) error {
	if err := s.dir.Rmdir(s.name); err != nil {
		if errors.Is(err, syscall.ENOTEMPTY) {
			return errors.New("holds something that stays")
		}
		return err
	}
	return x.done(o, s, false)
}

// set gives a file or folder that stands other attributes.
func (x *worker) set(o *op, s *slot) error {
	info, err := s.dir.Lstat(s.name)
	if err != nil {
		return err
	}
	now := stampOf(info, s.t.rootDev)
	if o.Old != nil && !o.Old.same(now) {
		return errEdited
	}
	if info.Kind != workfs.Regular && info.Kind != workfs.Directory {
		return errEdited
	}
	x.st.at("set")
	if err := dress(s.dir, s.name, *o.Want); err != nil {
		return err
	}
	return x.done(o, s, false)
}

// dress gives a file or folder its attributes; the time last, because the others change it.
func dress(d *workfs.Dir, name string, a attrs) error {
	if err := d.SetXattrs(name, a.User); err != nil && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	if err := d.Chmod(name, a.Mode); err != nil {
		return err
	}
	return d.SetTimes(name, time.Unix(0, a.Mtime))
}

// setRoot gives the tree's own folder its mode again, and the time that it has in the session.
func (x *worker) setRoot(o *op, want attrs) error {
	t := x.st.trees[o.T]
	if err := t.host.Chmod(".", want.Mode); err != nil {
		return err
	}
	if err := t.host.SetTimes(time.Unix(0, want.Mtime)); err != nil {
		return err
	}
	info, err := t.host.Stat()
	if err != nil {
		return err
	}
	now := stampOf(info, t.rootDev)
	if err := x.st.did(x.j, o, false, &now); err != nil {
		return &journalError{err}
	}
	return nil
}

// remove takes a file away and keeps it for undo.
func (x *worker) remove(o *op, s *slot) error {
	if err := s.unchanged(o.Old); err != nil {
		return err
	}
	x.st.at("remove")
	undo, err := s.t.undo.OpenDir(x.j.id)
	if err != nil {
		return err
	}
	defer undo.Close()
	err = s.dir.Rename(s.name, undo, o.undoName(), workfs.NoReplace)
	if err == nil {
		// Looked at again where nobody can change the name: the person may have saved in between.
		if err := keptIs(undo, o, s.t); err != nil {
			return errors.Join(err, undo.Rename(o.undoName(), s.dir, s.name, workfs.NoReplace))
		}
		x.st.at("removed")
		return x.done(o, s, false)
	}
	if !errors.Is(err, workfs.ErrCrossDevice) {
		return err
	}
	temp := x.j.temp(o)
	if err := s.dir.Rename(s.name, s.dir, temp, workfs.NoReplace); err != nil {
		return err
	}
	x.st.at("removing")
	back := func(err error) error {
		return errors.Join(err, s.dir.Rename(temp, s.dir, s.name, workfs.NoReplace), x.asWas(o, s))
	}
	got, err := s.stamp(temp)
	if err != nil || got == nil || !o.Old.moved(*got) {
		return back(errors.Join(errEdited, err))
	}
	if err := keepCopy(s.dir, temp, undo, o); err != nil {
		return back(err)
	}
	x.st.at("removed")
	if err := s.dir.Remove(temp); err != nil {
		return err
	}
	return x.done(o, s, false)
}

// keptIs makes sure that what was taken for undo is what was planned.
func keptIs(undo *workfs.Dir, o *op, t *tree) error {
	info, err := undo.Lstat(o.undoName())
	if err != nil {
		return err
	}
	if got := stampOf(info, t.rootDev); o.Old == nil || !o.Old.moved(got) {
		return errEdited
	}
	return nil
}

// keepCopy copies what is replaced to the undo folder of another file system, whole or not at all.
func keepCopy(d *workfs.Dir, name string, undo *workfs.Dir, o *op) error {
	part := o.undoName() + ".part"
	if err := undo.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := copyObject(d, name, undo, part); err != nil {
		return errors.Join(err, ignoreGone(undo.Remove(part)))
	}
	return undo.Rename(part, undo, o.undoName(), workfs.NoReplace)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyObject copies a regular file or symlink with all that belongs to it.
func copyObject(d *workfs.Dir, name string, to *workfs.Dir, as string) error {
	info, err := d.Lstat(name)
	if err != nil {
		return err
	}
	if info.Kind == workfs.Symlink {
		target, err := d.Readlink(name)
		if err != nil {
			return err
		}
		if err := to.Symlink(target, as); err != nil {
			return err
		}
		return to.SetTimes(as, info.ModTime)
	}
	have, err := hostAttrs(d, name, info)
	if err != nil {
		return err
	}
	in, _, err := d.OpenForced(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := fill(to, as, func(out *os.File) error { return workfs.CopyData(out, in, info.Size, maxCopy) }); err != nil {
		return err
	}
	if err := to.ChownLike(as, info.UID, info.GID); err != nil {
		return err
	}
	return dress(to, as, have)
}

// maxCopy bounds the bytes of one file: no disk is that large.
const maxCopy = 1 << 50

// fill makes a new file and closes it.
func fill(d *workfs.Dir, name string, write func(*os.File) error) error {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
