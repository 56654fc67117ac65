package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"coworker/platform/fsuser"
	"coworker/platform/workfs"
)

// errSince is what a step finds that was changed after the apply.
var errSince = errors.New("changed on the host after it was applied")

// Undo takes the newest apply back: the very files that were replaced or deleted return, with mode, time, attributes and
// other names. A path that the person changed after the apply stays as it is and is reported. What was taken back is a
// change again.
func (st *Stage) Undo(ctx context.Context, _ Options) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := st.load(); err != nil {
		return nil, err
	}
	res := &Result{Finished: st.finished}
	st.finished = ""
	list, err := journals(st.dir)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(f journalFile) bool { return f.undone })
	if len(list) == 0 {
		return nil, ErrNothing
	}
	j, err := openJournal(list[len(list)-1])
	if err != nil {
		return nil, err
	}
	res.Apply = j.id
	err = j.write(line{K: "undo"})
	if err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		st.at("undo")
		err = st.takeBack(j, res)
	}
	if err = errors.Join(err, j.close()); err != nil {
		return res, errors.Join(err, st.unload())
	}
	return res, nil
}

// takeBack undoes the steps, last first. The attributes of folders come at the very end, since every name that moves changes
// them.
func (st *Stage) takeBack(j *journal, res *Result) error {
	x := &worker{st: st, j: j}
	err := fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		if err := x.mark(); err != nil {
			return err
		}
		for _, last := range [...]bool{false, true} {
			for _, o := range slices.Backward(j.ops) {
				if last && o.back && o.Act == rmdir {
					x.redress(o)
				}
				if !o.done || o.back || isFolderSet(o) != last {
					continue
				}
				if err := x.report(o, x.back(o), res); err != nil {
					return err
				}
			}
		}
		return x.syncAll()
	})
	if err != nil {
		return err
	}
	if err := st.finishUndo(j); err != nil {
		return err
	}
	return fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		for _, t := range st.trees {
			if err := t.undo.RemoveAll(j.id, stageBounds); err != nil {
				return err
			}
		}
		return nil
	})
}

func isFolderSet(o *op) bool {
	return o.Act == set && (o.Old == nil || o.Old.Kind == workfs.Directory)
}

// renew takes over what a later apply, which was undone, left on the paths: the same file under another inode or with
// another change time.
func (x *worker) renew() {
	for _, o := range x.j.ops {
		if !o.done || o.back || o.now == nil {
			continue
		}
		known, ok := x.st.trees[o.T].base[o.rel()]
		was := *o.now
		was.Ino, was.Ctime, was.Links = known.Ino, known.Ctime, known.Links
		if ok && was == known {
			o.now = &known
		}
	}
}

// mark notes which folders are as the apply left them, before the first name moves.
func (x *worker) mark() error {
	x.renew()
	for _, o := range x.j.ops {
		if !isFolderSet(o) || !o.done || o.back || o.backIno != 0 {
			continue
		}
		l := line{K: "back-go", N: o.N, Ino: 2}
		t := x.st.trees[o.T]
		if info, err := t.host.Lstat(o.rel()); err == nil && o.now != nil && info.ModTime.UnixNano() == o.now.Mtime && info.Mode == o.now.Mode {
			l.Ino = 1
		}
		if err := x.write(l); err != nil {
			return err
		}
		if err := x.j.apply(l); err != nil {
			return err
		}
	}
	return nil
}

// report takes one step's outcome into the result.
func (x *worker) report(o *op, err error, res *Result) error {
	var torn *journalError
	if errors.As(err, &torn) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("undo %q: %w", o.rel(), err)
	}
	if o.Act == note || isFolderSet(o) {
		return nil
	}
	c := Change{Tree: o.T, Root: x.st.trees[o.T].path, Rel: o.rel(), Kind: undoKind(o), Verdict: Clean, Type: "file"}
	if s := cmpStamp(o.Old, o.now); s != nil {
		c.Type = s.Kind.String()
	}
	switch {
	case err == nil:
		res.Done = append(res.Done, c)
	case errors.Is(err, errSince):
		c.Verdict, c.Reason = Conflict, err.Error()
		res.Conflicts = append(res.Conflicts, c)
	default:
		c.Verdict, c.Reason = LeftOut, plain(err)
		res.LeftOut = append(res.LeftOut, c)
	}
	return nil
}

func cmpStamp(a, b *stamp) *stamp {
	if a != nil {
		return a
	}
	return b
}

// undoKind is what taking a step back does to the path.
func undoKind(o *op) Kind {
	switch {
	case o.Act == mkdir:
		return Removed
	case o.Act == rmdir:
		return Made
	case o.Act == set:
		return Mode
	case o.Act == remove:
		return Added
	case o.Old == nil:
		return Deleted
	}
	return Modified
}

// back takes one step back. Each way is safe to begin again: what was done already is recognised by its inode.
func (x *worker) back(o *op) error {
	if o.Act == note {
		if err := x.st.did(x.j, o, true, nil); err != nil {
			return &journalError{err}
		}
		return nil
	}
	if o.Act == set && o.rel() == "." {
		if o.Attr == nil || o.backIno != 1 {
			return nil
		}
		t := x.st.trees[o.T]
		return errors.Join(t.host.Chmod(".", o.Attr.Mode), t.host.SetTimes(time.Unix(0, o.Attr.Mtime)))
	}
	s, err := x.slot(o)
	if errors.Is(err, fs.ErrNotExist) || notFolder(err) {
		return errSince
	}
	if err != nil {
		return err
	}
	defer s.close()
	x.st.at("back")
	switch o.Act {
	case put:
		if o.Old == nil {
			err = x.backAdded(o, s)
		} else {
			err = x.backReplaced(o, s)
		}
	case remove:
		err = x.backRemoved(o, s)
	case mkdir:
		err = x.backMade(s)
	case rmdir:
		err = x.backFolder(o, s)
	case set:
		err = x.backSet(o, s)
	}
	if err != nil {
		return err
	}
	return x.done(o, s, true)
}

// asApplied refuses a path that is not as the apply left it.
func (s *slot) asApplied(o *op) error {
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if now == nil || o.now == nil || !o.now.same(*now) {
		return errSince
	}
	return nil
}

// backAdded removes a file that the apply brought.
func (x *worker) backAdded(o *op, s *slot) error {
	temp := x.j.temp(o)
	waiting, err := s.stamp(temp)
	if err != nil {
		return err
	}
	if waiting == nil {
		if err := s.asApplied(o); err != nil {
			return err
		}
		if err := s.dir.Rename(s.name, s.dir, temp, workfs.NoReplace); err != nil {
			return err
		}
		x.st.at("back moved")
		if waiting, err = s.stamp(temp); err != nil {
			return err
		}
	}
	if waiting == nil || o.now == nil || !o.now.moved(*waiting) { // saved in the very moment
		return errors.Join(errSince, s.dir.Rename(temp, s.dir, s.name, workfs.NoReplace))
	}
	return s.dir.Remove(temp)
}

// backReplaced brings the old file back in one step.
func (x *worker) backReplaced(o *op, s *slot) error {
	undo, err := s.t.undo.OpenDir(x.j.id)
	if err != nil {
		return err
	}
	defer undo.Close()
	kept, err := undo.Lstat(o.undoName())
	if errors.Is(err, fs.ErrNotExist) {
		return x.backDone(o, s)
	}
	if err != nil {
		return err
	}
	temp := x.j.temp(o)
	o.expect = 0
	if o.now != nil && kept.Ino == o.now.Ino && stampOf(kept, s.t.rootDev).Dev == o.now.Dev {
		return undo.Remove(o.undoName()) // exchanged already
	}
	if waiting, err := s.stamp(temp); err != nil {
		return err
	} else if waiting != nil {
		if o.now != nil && waiting.Ino == o.now.Ino { // exchanged already, across file systems
			return errors.Join(s.dir.Remove(temp), undo.Remove(o.undoName()))
		}
		if err := s.dir.Remove(temp); err != nil {
			return err
		}
	}
	if err := s.asApplied(o); err != nil {
		return err
	}
	err = undo.Rename(o.undoName(), s.dir, s.name, workfs.Exchange)
	if err == nil {
		o.expect = kept.Ino
		x.st.at("back exchanged")
		got, err := undo.Lstat(o.undoName())
		if err != nil || !o.now.moved(stampOf(got, s.t.rootDev)) {
			return errors.Join(errSince, err, undo.Rename(o.undoName(), s.dir, s.name, workfs.Exchange))
		}
		return undo.Remove(o.undoName())
	}
	if !errors.Is(err, workfs.ErrCrossDevice) {
		return err
	}
	if err := copyObject(undo, o.undoName(), s.dir, temp); err != nil {
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	if ready, err := s.stamp(temp); err == nil && ready != nil {
		o.expect = ready.Ino
	}
	if err := s.dir.Rename(temp, s.dir, s.name, workfs.Exchange); err != nil {
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	x.st.at("back exchanged")
	got, err := s.stamp(temp)
	if err != nil || got == nil || !o.now.moved(*got) {
		return errors.Join(errSince, err, s.dir.Rename(temp, s.dir, s.name, workfs.Exchange), s.dir.Remove(temp))
	}
	return errors.Join(s.dir.Remove(temp), undo.Remove(o.undoName()))
}

// backDone is for a step whose kept file is gone: it was put back before the process died.
func (x *worker) backDone(o *op, s *slot) error {
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if now == nil || o.now != nil && now.Ino == o.now.Ino {
		return fmt.Errorf("the old version was not kept: %w", ErrTorn)
	}
	return nil
}

// backRemoved brings a deleted file back.
func (x *worker) backRemoved(o *op, s *slot) error {
	undo, err := s.t.undo.OpenDir(x.j.id)
	if err != nil {
		return err
	}
	defer undo.Close()
	kept, err := undo.Lstat(o.undoName())
	if errors.Is(err, fs.ErrNotExist) {
		return x.backDone(o, s)
	}
	o.expect = kept.Ino
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if now != nil && o.backIno != 0 && now.Ino == o.backIno {
		o.expect = o.backIno
		return undo.Remove(o.undoName())
	}
	if now != nil {
		return errSince
	}
	err = undo.Rename(o.undoName(), s.dir, s.name, workfs.NoReplace)
	if !errors.Is(err, workfs.ErrCrossDevice) {
		return err
	}
	temp := x.j.temp(o)
	if err := ignoreGone(s.dir.Remove(temp)); err != nil {
		return err
	}
	if err := copyObject(undo, o.undoName(), s.dir, temp); err != nil {
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	ready, err := s.stamp(temp)
	if err != nil || ready == nil {
		return errors.Join(err, errSince)
	}
	if err := x.write(line{K: "back-go", N: o.N, Ino: ready.Ino}); err != nil {
		return err
	}
	o.expect = ready.Ino
	if err := s.dir.Rename(temp, s.dir, s.name, workfs.NoReplace); err != nil {
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	x.st.at("back moved")
	return undo.Remove(o.undoName())
}

// backMade removes a folder that the apply made, if nothing is in it.
func (x *worker) backMade(s *slot) error {
	err := s.dir.Rmdir(s.name)
	if errors.Is(err, syscall.ENOTEMPTY) || notFolder(err) {
		return errSince
	}
	return ignoreGone(err)
}

// backFolder makes a removed folder again. Its time follows when its files are back.
func (x *worker) backFolder(o *op, s *slot) error {
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if now != nil && now.Kind != workfs.Directory {
		return errSince
	}
	if now == nil {
		if err := s.dir.Mkdir(s.name, 0o700); err != nil {
			return err
		}
	}
	if o.Attr == nil {
		return nil
	}
	early := *o.Attr
	early.Mode |= 0o700
	return dress(s.dir, s.name, early)
}

// redress gives a folder that is there again its mode and time, after its files came back. It may be gone again.
func (x *worker) redress(o *op) {
	s, err := x.slot(o)
	if err != nil {
		return
	}
	defer s.close()
	if now, err := s.stamp(s.name); err == nil && now != nil && now.Kind == workfs.Directory && o.Attr != nil {
		_ = dress(s.dir, s.name, *o.Attr)
	}
}

// backSet gives a file or folder the attributes that it had.
func (x *worker) backSet(o *op, s *slot) error {
	if o.Attr == nil {
		return nil // of a folder that the apply made
	}
	if isFolderSet(o) {
		if o.backIno != 1 {
			return nil
		}
		return dress(s.dir, s.name, *o.Attr)
	}
	now, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	if now == nil || o.now == nil || now.Ino != o.now.Ino {
		return errSince
	}
	have, err := rootAttrs(s.t.host, o.rel(), workfs.Info{Mode: now.Mode, ModTime: time.Unix(0, now.Mtime)})
	if err != nil {
		return err
	}
	if !have.same(*o.Want) && !have.same(*o.Attr) && o.backIno == 0 {
		return errSince
	}
	if err := x.write(line{K: "back-go", N: o.N, Ino: now.Ino}); err != nil {
		return err
	}
	return dress(s.dir, s.name, *o.Attr)
}
