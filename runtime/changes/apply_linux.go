package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"coworker/platform/fsuser"
	"coworker/platform/workfs"
)

const (
	batchOps   = 512
	batchBytes = 64 << 20
)

// run is one apply in progress.
type run struct {
	st     *Stage
	ctx    context.Context
	o      Options
	res    *Result
	plans  []planned
	stay   []string               // paths that stay on the host
	linked map[uint64]*op         // inodes of the upper folder with several names that were written
	touch  map[int]map[string]*op // folders that get mode and time at the end
	byOp   map[*op]*Change
}

type planned struct {
	op  *op
	key step // phase and class
	c   *Change
}

// Apply brings the changes into the host's folders. The cell must be stopped or dead.
func (st *Stage) Apply(ctx context.Context, o Options) (*Result, error) {
	set, err := st.Changes(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{st: st, ctx: ctx, o: o, res: &Result{Finished: st.finished}, linked: map[uint64]*op{}, touch: map[int]map[string]*op{}, byOp: map[*op]*Change{}}
	st.finished = ""
	for i := range set.Changes {
		if err := r.plan(&set.Changes[i]); err != nil {
			return r.res, err
		}
	}
	if len(r.plans) == 0 {
		return r.res, nil
	}
	return r.res, r.carryOut()
}

// plan decides about one change.
func (r *run) plan(c *Change) error {
	verdict := c.Verdict
	if verdict == LeftOut && c.plan.waits && !r.stays(c.Rel) {
		verdict = Clean // what was in the folder goes because the person said so
	}
	switch verdict {
	case Held:
		return r.held(c)
	case LeftOut:
		r.leave(c, c.Reason)
		return nil
	case Conflict:
		answer := Leave
		if r.o.Resolve != nil {
			answer = r.o.Resolve(*c)
		}
		switch answer {
		case KeepHost:
			r.stay = append(r.stay, c.Rel)
			r.res.Kept = append(r.res.Kept, *c)
			r.add(c, step{act: note, upper: c.plan.upper})
			return nil
		case Leave:
			r.conflict(c, c.Reason)
			return nil
		}
	}
	if c.plan.first != "" {
		first := c.plan
		first.act, first.phase = c.plan.first, early
		if first.upper = ""; first.act == rmdir {
			first.old = nil
		}
		r.add(c, first)
		c.plan.old = nil
	}
	r.add(c, c.plan)
	return nil
}

func (r *run) stays(rel string) bool {
	return slices.ContainsFunc(r.stay, func(s string) bool { return strings.HasPrefix(s, rel+"/") })
}

func (r *run) leave(c *Change, why string) {
	c.Verdict, c.Reason = LeftOut, why
	r.stay = append(r.stay, c.Rel)
	r.res.LeftOut = append(r.res.LeftOut, *c)
}

func (r *run) conflict(c *Change, why string) {
	c.Verdict, c.Reason = Conflict, why
	r.stay = append(r.stay, c.Rel)
	r.res.Conflicts = append(r.res.Conflicts, *c)
}

// add plans one step.
func (r *run) add(c *Change, s step) {
	o := &op{T: c.Tree, Act: s.act, P: []byte(c.Rel), Old: s.old, Upper: s.upper, data: s.data}
	if s.act == put || s.act == mkdir || s.act == set {
		want := s.want
		o.Want = &want
	}
	r.byOp[o] = c
	r.plans = append(r.plans, planned{op: o, key: s, c: c})
}

// carryOut writes the plan, does it, and closes it. Only the journal is written with our own rights.
func (r *run) carryOut() error {
	st := r.st
	if err := fsuser.Run(st.meta.UID, st.meta.GID, r.foldersTouched); err != nil {
		return err
	}
	slices.SortStableFunc(r.plans, func(a, b planned) int { return a.key.compare(a.op.rel(), &b.key, b.op.rel()) })
	ops := make([]*op, len(r.plans))
	for i, p := range r.plans {
		ops[i] = p.op
	}
	j, err := st.begin(ops)
	if err != nil {
		return err
	}
	r.res.Apply = j.id
	st.at("planned")
	err = fsuser.Run(st.meta.UID, st.meta.GID, func() error { return r.steps(j) })
	if err == nil {
		err = j.write(line{K: "end"})
	}
	if err = errors.Join(err, j.close()); err != nil {
		// What stands half done is dealt with like that of a process that died, by whoever looks next.
		return errors.Join(err, st.unload())
	}
	return nil
}

// foldersTouched plans the end: each folder in which something is done gets the time it has in the session.
func (r *run) foldersTouched() error {
	for _, p := range slices.Clone(r.plans) {
		switch {
		case p.op.Act == note:
			continue
		case p.op.Act == rmdir, p.op.Act == set && p.c.Type != workfs.Directory.String():
			if err := r.before(r.st.trees[p.op.T], p.op.rel(), p.op); err != nil {
				return err
			}
		}
		if p.op.Act == set && p.c.Type == workfs.Directory.String() || p.op.Act == mkdir {
			if err := r.touchFolder(p.op.T, p.op.rel(), p.op); err != nil {
				return err
			}
		}
		if err := r.touchFolder(p.op.T, path.Dir(p.op.rel()), nil); err != nil {
			return err
		}
	}
	for _, folders := range r.touch {
		for _, o := range folders {
			if o != nil {
				r.plans = append(r.plans, planned{op: o, key: step{phase: finishes}})
			}
		}
	}
	return nil
}

// touchFolder notes a folder once. by is the step that changes the folder itself.
func (r *run) touchFolder(index int, rel string, by *op) error {
	if r.touch[index] == nil {
		r.touch[index] = map[string]*op{}
	}
	_, seen := r.touch[index][rel]
	if seen && by == nil {
		return nil
	}
	t := r.st.trees[index]
	if by != nil && by.Act == set {
		r.touch[index][rel] = nil // the step itself is the last one
		return r.before(t, rel, by)
	}
	o := &op{T: index, Act: set, P: []byte(rel), Want: &attrs{}}
	if by != nil {
		*o.Want = *by.Want
		r.touch[index][rel] = o
		return nil
	}
	if err := r.before(t, rel, o); err != nil {
		return err
	}
	r.touch[index][rel] = nil
	if o.Attr == nil {
		return nil // not there yet: its own step says how it will be
	}
	*o.Want = *o.Attr
	if u, err := lookAt(t.upper, rel); err == nil { // else it is about to go, but may have to stay
		o.Want.Mtime = u.ModTime.UnixNano()
	}
	r.touch[index][rel] = o
	return nil
}

func lookAt(root *workfs.Root, rel string) (workfs.Info, error) {
	info, err := root.Lstat(rel)
	if err == nil && info.Kind != workfs.Directory {
		err = fs.ErrNotExist
	}
	return info, err
}

// before notes what a path has before a step changes it.
func (r *run) before(t *tree, rel string, o *op) error {
	info, err := t.host.Lstat(rel)
	if err != nil {
		return nil // nothing there
	}
	have, err := rootAttrs(t.host, rel, info)
	if err != nil {
		return err
	}
	o.Attr = &have
	if o.Old == nil {
		old := stampOf(info, t.rootDev)
		o.Old = &old
	}
	return nil
}

func rootAttrs(root *workfs.Root, rel string, info workfs.Info) (attrs, error) {
	if rel == "." {
		return attrs{Mode: info.Mode, Mtime: info.ModTime.UnixNano()}, nil
	}
	d, name, err := root.Parent(rel)
	if err != nil {
		return attrs{}, err
	}
	defer d.Close()
	return hostAttrs(d, name, info)
}

// steps does the plan in order. A step that cannot be done is reported and does not stop the others; only a journal that
// cannot be written, or a full disk, does.
func (r *run) steps(j *journal) error {
	for _, t := range r.st.trees {
		top, err := t.undo.OpenDir(".")
		if err != nil {
			return err
		}
		err = top.Mkdir(j.id, 0o700)
		top.Close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	x := &worker{st: r.st, j: j, run: r}
	for i := 0; i < len(j.ops); {
		if err := r.ctx.Err(); err != nil {
			return errors.Join(err, x.syncAll()) // what is done stays done; the rest is for the next time
		}
		n, err := x.batch(j.ops[i:])
		if err != nil {
			return err
		}
		i += n
	}
	return x.syncAll()
}

// failed takes a step that was not done out of the result.
func (r *run) failed(o *op, err error) {
	c := r.byOp[o]
	if c == nil || c.Verdict == LeftOut || c.Verdict == Conflict {
		return
	}
	if errors.Is(err, errEdited) {
		r.conflict(c, err.Error())
		return
	}
	r.leave(c, cmp.Or(plain(err), "could not be applied"))
}

func (r *run) succeeded(o *op) {
	c := r.byOp[o]
	if c == nil || o.Act == note || o.Act == rmdir && c.plan.act != rmdir || o.Act == remove && c.plan.act != remove {
		return
	}
	r.res.Done = append(r.res.Done, *c)
}

// errEdited is what a step returns that found the path otherwise than when it was planned.
var errEdited = errors.New("edited on the host while the changes were applied")

func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %v", p.Op, p.Err)
	}
	return err.Error()
}
