package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"coworker/platform/fsuser"
	"coworker/platform/workfs"
)

// resume deals with a journal that a killed process, or a power cut, left open. A step that had not reached its place is
// rolled back, one that had is completed, and an undo that had begun goes on. What was not done yet is a change again.
func (st *Stage) resume(j *journal) error {
	x := &worker{st: st, j: j}
	if j.undo {
		return st.takeBack(j, &Result{})
	}
	err := fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		for _, o := range j.ops {
			if o.done {
				continue
			}
			if err := x.resolve(o); err != nil {
				return fmt.Errorf("finish interrupted apply %s at %q: %w", j.id, o.rel(), err)
			}
		}
		return x.syncAll()
	})
	if err != nil {
		return err
	}
	return j.write(line{K: "end"})
}

// resolve finds out from the paths themselves how far a step came.
func (x *worker) resolve(o *op) error {
	if o.Act == note {
		return nil
	}
	if o.Act == set && o.rel() == "." {
		return x.setRoot(o, *o.Want)
	}
	s, err := x.slot(o)
	if errors.Is(err, fs.ErrNotExist) || notFolder(err) || errors.Is(err, workfs.ErrCrossDevice) {
		return nil // its folder is not there: it cannot have begun, or the person removed what it did
	}
	if err != nil {
		return err
	}
	defer s.close()
	switch o.Act {
	case put:
		return x.resolvePut(o, s)
	case remove:
		return x.resolveRemove(o, s)
	case mkdir:
		if now, err := s.stamp(s.name); err != nil || now == nil || now.Kind != workfs.Directory {
			return err
		}
		return x.done(o, s, false)
	case rmdir:
		if now, err := s.stamp(s.name); err != nil || now != nil {
			return err
		}
		return x.done(o, s, false)
	case set:
		return x.resolveSet(o, s)
	}
	return fmt.Errorf("step %q: %w", o.Act, ErrTorn)
}

// resolveSet gives the attributes again: half of them may be set.
func (x *worker) resolveSet(o *op, s *slot) error {
	now, err := s.stamp(s.name)
	if err != nil || now == nil {
		return err
	}
	if now.Kind == workfs.Regular && (o.Old == nil || now.Ino != o.Old.Ino || now.Size != o.Old.Size) {
		return nil // another file by now
	}
	if now.Kind != workfs.Regular && now.Kind != workfs.Directory {
		return nil
	}
	if err := dress(s.dir, s.name, *o.Want); err != nil {
		return err
	}
	return x.done(o, s, false)
}

func (x *worker) resolvePut(o *op, s *slot) error {
	o.expect = o.ino
	temp := x.j.temp(o)
	at, err := s.stamp(s.name)
	if err != nil {
		return err
	}
	waiting, err := s.stamp(temp)
	if err != nil {
		return err
	}
	switch {
	case waiting == nil && o.Old == nil:
		if at == nil || o.ino == 0 || at.Ino != o.ino {
			return nil
		}
		return x.done(o, s, false)
	case waiting == nil:
		if kept, err := x.isKept(o, s.t); err != nil || !kept {
			return err
		}
		return x.done(o, s, false)
	case o.Old == nil || waiting.Ino != o.Old.Ino || at != nil && at.Ino == waiting.Ino:
		return s.dir.Remove(temp) // the new file never got to its place
	}
	// The old file is under the temporary name: the exchange was done.
	if kept, err := x.isKept(o, s.t); err != nil {
		return err
	} else if kept { // copied to another file system, whole
		if err := s.dir.Remove(temp); err != nil {
			return err
		}
		return x.done(o, s, false)
	}
	if err := x.keep(o, s, temp); err != nil {
		return err
	}
	return x.done(o, s, false)
}

// isKept says whether the undo folder has what stood at the path.
func (x *worker) isKept(o *op, t *tree) (bool, error) {
	_, err := t.undo.Lstat(x.j.id + "/" + o.undoName())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (x *worker) resolveRemove(o *op, s *slot) error {
	temp := x.j.temp(o)
	waiting, err := s.stamp(temp)
	if err != nil {
		return err
	}
	kept, err := x.isKept(o, s.t)
	if err != nil {
		return err
	}
	switch {
	case waiting != nil && kept:
		if err := s.dir.Remove(temp); err != nil {
			return err
		}
	case waiting != nil: // taken away but not kept: it goes back
		err := s.dir.Rename(temp, s.dir, s.name, workfs.NoReplace)
		if err == nil {
			return x.asWas(o, s)
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := x.keep(o, s, temp); err != nil { // the person made a new one: theirs stands
			return err
		}
	case !kept:
		return nil
	}
	return x.done(o, s, false)
}

// finishUndo renames the journal, and removes what was kept.
func (st *Stage) finishUndo(j *journal) error {
	if err := j.write(line{K: "undone"}); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	path := filepath.Join(st.dir, journalDir, j.id+undoneSuffix)
	if err := os.Rename(j.path, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
