package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"coworker/platform/workfs"
)

// prepare makes the new file under a temporary name next to its place. Nothing that a person sees changes yet.
func (x *worker) prepare(o *op) (int64, error) {
	s, err := x.slot(o)
	if err != nil {
		return 0, err
	}
	defer s.close()
	if err := s.unchanged(o.Old); err != nil {
		return 0, err
	}
	temp := x.j.temp(o)
	wrote, err := x.fill(o, s, temp)
	if err == nil {
		var got *stamp
		if got, err = s.stamp(temp); err == nil && got == nil {
			err = errEdited
		} else if err == nil {
			o.ino = got.Ino
		}
	}
	if err != nil {
		return 0, errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	return wrote, nil
}

// fill makes the temporary file.
func (x *worker) fill(o *op, s *slot, temp string) (int64, error) {
	if o.data != nil {
		if err := fill(s.dir, temp, func(f *os.File) error { _, err := f.Write(o.data); return err }); err != nil {
			return 0, err
		}
		return int64(len(o.data)), x.adopt(o, s, temp)
	}
	up, name, err := s.t.upper.Parent(o.rel())
	if err != nil {
		return 0, err
	}
	defer up.Close()
	u, err := up.Lstat(name)
	if err != nil {
		return 0, err
	}
	if u.Kind == workfs.Symlink {
		target, err := up.Readlink(name)
		if err != nil {
			return 0, err
		}
		if err := s.dir.Symlink(target, temp); err != nil {
			return 0, err
		}
		return 0, s.dir.SetTimes(temp, u.ModTime)
	}
	if linked, err := x.link(o, s, u, temp); linked || err != nil {
		return 0, err
	}
	if err := x.copy(s, up, name, temp, u); err != nil {
		return 0, err
	}
	if err := x.adopt(o, s, temp); err != nil {
		return 0, err
	}
	after, err := up.Lstat(name)
	if err == nil && (after.Ino != u.Ino || after.Size != u.Size || !after.ModTime.Equal(u.ModTime)) {
		err = errors.New("the session changed it while it was applied")
	}
	return u.Size, err
}

func (x *worker) copy(s *slot, up *workfs.Dir, name, temp string, u workfs.Info) error {
	in, info, err := up.OpenForced(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if info.Ino != u.Ino {
		return errors.New("the session changed it while it was applied")
	}
	out, err := s.dir.Create(temp)
	if err != nil {
		return err
	}
	err = workfs.CopyData(out, in, info.Size, maxCopy)
	return errors.Join(err, out.Close())
}

// adopt gives the temporary file the group of what it replaces, and the mode, attributes and time that the session gave it.
func (x *worker) adopt(o *op, s *slot, temp string) error {
	if o.Old != nil {
		info, err := s.dir.Lstat(s.name)
		if err != nil {
			return err
		}
		if err := s.dir.ChownLike(temp, info.UID, info.GID); err != nil {
			return err
		}
	}
	return dress(s.dir, temp, *o.Want)
}

// link makes the temporary file a second name of one that was already written, where the session made it one.
func (x *worker) link(o *op, s *slot, u workfs.Info, temp string) (bool, error) {
	if u.Nlink < 2 || x.run == nil {
		return false, nil
	}
	first := x.run.linked[u.Ino]
	if first == nil {
		x.run.linked[u.Ino] = o
		return false, nil
	}
	if first.T != o.T || first.ino == 0 {
		return false, nil
	}
	from, err := x.slot(first)
	if err != nil {
		return false, nil
	}
	defer from.close()
	// The first may still wait under its temporary name.
	for _, name := range [...]string{from.name, x.j.temp(first)} {
		got, err := from.stamp(name)
		if err != nil || got == nil || got.Ino != first.ino {
			continue
		}
		if err := from.dir.Link(name, s.dir, temp); err != nil {
			return false, nil // another file system, or too many names: a copy does
		}
		o.twin = first
		return true, nil
	}
	return false, nil
}

// commit brings the prepared file to its place in one step, keeping what stood there.
func (x *worker) commit(o *op) error {
	s, err := x.slot(o)
	if err != nil {
		return err
	}
	defer s.close()
	temp := x.j.temp(o)
	drop := func(err error) error { return errors.Join(err, ignoreGone(s.dir.Remove(temp))) }
	if err := s.unchanged(o.Old); err != nil {
		return drop(err)
	}
	if err := x.write(line{K: "go", N: o.N, Ino: o.ino}); err != nil {
		return err
	}
	x.st.at("go")
	if o.Old == nil {
		err := s.dir.Rename(temp, s.dir, s.name, workfs.NoReplace)
		if errors.Is(err, fs.ErrExist) {
			err = errEdited
		}
		if err != nil {
			return drop(err)
		}
	} else if err := x.exchange(o, s, temp); err != nil {
		return err
	}
	x.st.at("placed")
	o.expect = o.ino
	if err := x.done(o, s, false); err != nil {
		return err
	}
	return x.again(o)
}

// again notes how the first name of a file stands now that it has another.
func (x *worker) again(o *op) error {
	if o.twin == nil || !o.twin.done {
		return nil
	}
	s, err := x.slot(o.twin)
	if err != nil {
		return nil
	}
	defer s.close()
	if now, err := s.stamp(s.name); err != nil || now == nil || now.Ino != o.ino {
		return nil
	}
	return x.done(o.twin, s, false)
}

// exchange swaps the new file with the old one, looks at what it got, and keeps it for undo. No reader sees the name missing.
func (x *worker) exchange(o *op, s *slot, temp string) error {
	if err := s.dir.Rename(temp, s.dir, s.name, workfs.Exchange); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errEdited
		}
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)))
	}
	x.st.at("exchanged")
	back := func(err error) error {
		if xerr := s.dir.Rename(temp, s.dir, s.name, workfs.Exchange); xerr != nil {
			return errors.Join(err, fmt.Errorf("put %q back, which is now %q: %w", s.name, temp, xerr))
		}
		return errors.Join(err, ignoreGone(s.dir.Remove(temp)), x.asWas(o, s))
	}
	got, err := s.stamp(temp)
	if err != nil || got == nil || !o.Old.moved(*got) {
		return back(errors.Join(errEdited, err))
	}
	if err := x.keep(o, s, temp); err != nil {
		return back(fmt.Errorf("keep the old version for undo: %w", err))
	}
	return nil
}

// keep moves what stood at a path to the undo folder.
func (x *worker) keep(o *op, s *slot, temp string) error {
	undo, err := s.t.undo.OpenDir(x.j.id)
	if err != nil {
		return err
	}
	defer undo.Close()
	err = s.dir.Rename(temp, undo, o.undoName(), workfs.NoReplace)
	if !errors.Is(err, workfs.ErrCrossDevice) {
		return err
	}
	if err := keepCopy(s.dir, temp, undo, o); err != nil {
		return err
	}
	x.st.at("kept")
	return s.dir.Remove(temp)
}

// held copies the session's version of a path to the held files, without the rights that are never taken over.
func (r *run) held(c *Change) error {
	if r.o.Hold == nil {
		r.leave(c, c.Reason+" (no place to hold it)")
		return nil
	}
	if len(r.res.HeldItems) >= maxHeld {
		r.leave(c, fmt.Sprintf("%s (more than %d files to hold)", c.Reason, maxHeld))
		return nil
	}
	t := r.st.trees[c.Tree]
	item, err := r.st.holdOne(r.ctx, t, c, r.o.Hold)
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return err
		}
		r.leave(c, fmt.Sprintf("%s (cannot be held: %v)", c.Reason, err))
		return nil
	}
	r.stay = append(r.stay, c.Rel)
	r.res.HeldItems = append(r.res.HeldItems, HeldItem{ID: item.ID, Rel: c.Rel, Reason: item.Reason})
	r.add(c, step{act: note, upper: c.plan.upper})
	return nil
}

// maxHeld bounds the held files of one apply: each costs several syncs.
const maxHeld = 1000
