package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/runtime/changes"
	"coworker/runtime/held"
	"coworker/runtime/treescan"
	"coworker/runtime/wire"
)

// staging is what a staged session has besides a live one: its writable trees are overlays, and what is written in them
// lies in a folder of the store until somebody applies it.
type staging struct {
	store *changes.Store
	stage *changes.Stage
}

// StagingError says that a workspace cannot be staged here. A staged session was asked for by name, so it is refused, never
// made live instead.
type StagingError struct {
	Why string
	Err error // nil if Why says all
}

func (e *StagingError) Error() string {
	if e.Err == nil {
		return "a staged workspace is not possible here: " + e.Why
	}
	return fmt.Sprintf("a staged workspace is not possible here: %s: %v", e.Why, e.Err)
}

// Unwrap gives the cause.
func (e *StagingError) Unwrap() error { return e.Err }

// liveRemedy is the one step that always helps.
const liveRemedy = "--live works in the real folder, with protected and secret names covered by mounts"

// stagingRemedy makes an error of a session that did not start one about staging, if it is that.
func (s *Session) stagingRemedy(refused *RefusedError) {
	var staging *StagingError
	var failed *wire.Failed
	switch {
	case !s.options.Staged:
	case errors.As(refused.Cause, &staging):
		refused.Remedy = liveRemedy
	case errors.As(refused.Cause, &failed) && failed.Step == native.StepStage:
		why := "this kernel does not make the overlay"
		if unix.Errno(failed.Errno) == unix.EPERM {
			why = "this kernel makes no overlay for a user namespace (Linux 5.11 or newer does)"
		}
		refused.Cause, refused.Remedy = &StagingError{Why: why, Err: refused.Cause}, liveRemedy
	}
}

// openStage makes the stage of the session, when the trees have been looked at, and remembers what the host's folders look
// like, as the last thing before the cell may see them.
func (s *Session) openStage(ctx context.Context) error {
	if !s.options.Staged {
		return nil
	}
	spec := &s.options.Spec
	if err := makeStageStore(s.options.StageStore, spec.Identity); err != nil {
		return fmt.Errorf("make the folder of staged changes: %w", err)
	}
	if err := checkUpper(s.options.StageStore); err != nil {
		return err
	}
	var err error
	if s.staging.store, err = changes.OpenStore(s.options.StageStore); err != nil {
		return fmt.Errorf("folder of staged changes %q: %w", s.options.StageStore, err)
	}
	s.undo(s.staging.store.Close)
	s.staging.stage, err = s.staging.store.Create(ctx, changes.Request{
		Session: s.id, Workspace: spec.Workspace, UID: spec.Identity.UID, GID: spec.Identity.GID, Trees: spec.Trees, Now: s.options.Now(),
	})
	if err != nil {
		return fmt.Errorf("stage in %q: %w", s.options.StageStore, err)
	}
	s.undo(s.endStage)
	for i := range spec.Trees {
		t := &spec.Trees[i]
		if !t.Writable {
			continue
		}
		t.Stage = s.staging.stage.Folder(i)
		s.guard.trees[i].tree.Stage = t.Stage
		if err := s.staging.stage.Baseline(ctx, i, s.guard.trees[i].root); err != nil {
			return &ScanError{Tree: t.Path, Err: fmt.Errorf("remember what is staged: %w", err)}
		}
	}
	return nil
}

// makeStageStore makes the folder of staged changes. Where root keeps those of other users nobody else may write there: what
// an apply believes lies beside what the session wrote. The keeper walks through it with the session's ids.
func makeStageStore(store string, id enforce.Identity) error {
	if os.Geteuid() != 0 || id.UID == 0 {
		return os.MkdirAll(store, 0o700)
	}
	if err := os.MkdirAll(store, 0o711); err != nil {
		return err
	}
	own := path.Dir(store)
	for dir := store; dir != "/"; dir = path.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return fmt.Errorf("%q: %w", dir, err)
		}
		switch {
		case st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
			return fmt.Errorf("%q is not a folder that only root can change", dir)
		case st.Mode&0o001 == 0 && (dir == store || dir == own): // by the umask
			if err := os.Chmod(dir, 0o711); err != nil {
				return err
			}
		case st.Mode&0o001 == 0:
			return fmt.Errorf("uid %d cannot walk through %q", id.UID, dir)
		}
	}
	return nil
}

// checkStaging looks for what no overlay can be put over, or that an overlay would show otherwise than a live folder.
func (s *Session) checkStaging() error {
	if !s.options.Staged {
		return nil
	}
	if name := s.options.Backend.Name(); !name.Namespaces() {
		return &StagingError{Why: fmt.Sprintf("the backend %s makes no mounts", name)}
	}
	if !path.IsAbs(s.options.StageStore) {
		return fmt.Errorf("bug: the folder of staged changes is %q", s.options.StageStore)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points, err := native.MountPoints(string(mounts))
	if err != nil {
		return err
	}
	for _, t := range s.options.Spec.Trees {
		if !t.Writable {
			continue
		}
		if err := checkStagedTree(t, s.options.StageStore, points); err != nil {
			return err
		}
		s.tellOwner(t)
	}
	return nil
}

// tellOwner says what cannot be changed on a copy: a session knows one user and one group, and an overlay gives every copy the
// ids of the original (ovl_copy_up in the kernel's fs/overlayfs/copy_up.c), so that of other ids it can copy nothing.
func (s *Session) tellOwner(t enforce.Tree) {
	var st unix.Stat_t
	id := s.options.Spec.Identity
	if unix.Lstat(t.Path, &st) != nil || int(st.Uid) == id.UID && int(st.Gid) == id.GID {
		return
	}
	s.options.Notify(Notice{
		Text: fmt.Sprintf("%q belongs to user %d and group %d: what has another user than %d or another group than %d cannot be changed on a copy (EOVERFLOW)",
			shorten(t.Path), st.Uid, st.Gid, id.UID, id.GID),
		Hint: fmt.Sprintf("chgrp -R %d on the folder, or --live", id.GID),
	})
}

func checkStagedTree(t enforce.Tree, store string, mounts map[string]bool) error {
	within := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }
	switch {
	case t.File:
		return &StagingError{Why: fmt.Sprintf("%q is a single file, and only folders can be staged", t.Path)}
	case within(store, t.Path):
		return &StagingError{Why: fmt.Sprintf("staged changes are kept in %q, which lies in the workspace %q", store, t.Path)}
	}
	for p := range mounts {
		// An overlay shows one file system: what lies under the mount would come to light.
		if p != t.Path && within(p, t.Path) {
			return &StagingError{Why: fmt.Sprintf("%q is mounted inside %q, and an overlay would show what lies under it", p, t.Path)}
		}
	}
	return nil
}

// overlayMagic is what statfs(2) says about an overlay.
const overlayMagic = unix.OVERLAYFS_SUPER_MAGIC

// checkUpper asks whether the store's file system can be the upper layer of an overlay made in a user namespace.
func checkUpper(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("file system of %q: %w", dir, err)
	}
	name := map[int64]string{overlayMagic: "an overlay itself (as in a container)", unix.NFS_SUPER_MAGIC: "NFS", unix.V9FS_MAGIC: "9p",
		unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB", unix.FUSE_SUPER_MAGIC: "FUSE", unix.MSDOS_SUPER_MAGIC: "FAT"}[int64(st.Type)]
	if name != "" {
		return &StagingError{Why: fmt.Sprintf("staged changes are kept in %q, on a file system that cannot be the upper layer: %s", dir, name)}
	}
	if err := userAttributes(dir); err != nil {
		return &StagingError{Why: fmt.Sprintf("staged changes are kept in %q, on a file system without user attributes", dir), Err: err}
	}
	return nil
}

// userAttributes tries whether a folder can have one.
func userAttributes(dir string) error {
	const name = "user.coworker.probe"
	if err := unix.Lsetxattr(dir, name, []byte("1"), 0); err != nil {
		return err
	}
	return unix.Lremovexattr(dir, name)
}

// endStage runs when the cell is dead and its mounts are gone. A stage in which nothing ran, or nothing was changed, goes.
func (s *Session) endStage() error {
	stage, empty := s.staging.stage, !s.guard.live
	if empty {
		s.staging.stage = nil
		return stage.Discard(context.Background())
	}
	if err := stage.Ended(); err != nil {
		return err
	}
	for _, t := range s.options.Spec.Trees {
		if t.Stage == "" || s.stageOf(t) {
			continue
		}
		s.staging.stage = nil
		return stage.Close()
	}
	return nil
}

// stageOf reports whether the stage of a tree is there. That of the scratch repository belongs to the battery.
func (s *Session) stageOf(t enforce.Tree) bool {
	_, err := os.Lstat(t.Stage)
	return err == nil || !strings.HasPrefix(t.Stage, s.options.StageStore+"/")
}

// Staged gives the stage of a staged session, nil in a live one. Until Close it belongs to the session; after it the caller
// may apply or discard it, and closes it. It is nil then if nothing was changed.
func (s *Session) Staged() *changes.Stage { return s.staging.stage }

// errLive is the answer to questions that only a staged session can answer.
var errLive = errors.New("the session works in the real folder: nothing is staged")

// Changes tells what an apply would do now. Nothing inside runs meanwhile.
func (s *Session) Changes(ctx context.Context) (set *changes.Set, err error) {
	err = s.stopped(func() error {
		set, err = s.staging.stage.Changes(ctx)
		return err
	})
	return set, err
}

// ApplyNow brings what is staged into the real folders while the session lives. Nothing inside runs meanwhile, so that a
// file is never taken half written. What is held or in conflict stays in the stage.
func (s *Session) ApplyNow(ctx context.Context, resolve func(changes.Change) changes.Resolution) (result *changes.Result, err error) {
	err = s.stopped(func() error {
		result, err = s.staging.stage.Apply(ctx, changes.Options{Resolve: resolve, Hold: s.guard.store, Now: s.options.Now()})
		return err
	})
	return result, err
}

// stopped runs f in a staged session while nothing inside runs.
func (s *Session) stopped(f func() error) error {
	if s.staging.stage == nil {
		return errLive
	}
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if state := s.current(); state != Ready || s.guard.dead {
		return fmt.Errorf("look at the stage of a session that is %s", state)
	}
	thaw, err := s.freeze(applyRest)
	if err != nil {
		return err
	}
	return errors.Join(f(), thaw())
}

// applyRest is how long everything inside may take to come to rest for a look at the stage. Unlike a sweep nobody waits in
// doubt meanwhile: the person's folder is as it was.
const applyRest = 10 * time.Second

// HeldStore gives the store of held files, for an apply after Close. The caller closes it.
func (s *Session) HeldStore() (*held.Store, error) { return held.Open(s.options.StateDir) }

// stagedChecks looks at the cell's mount table from outside: every staged tree must be an overlay, and nothing of the
// host's may lie on top of it.
func (s *Session) stagedChecks() []enforce.Probe {
	if !s.options.Staged {
		return nil
	}
	o := &outside{}
	const name = "fs.protect/outside-staged"
	mounted, err := s.filesystems()
	if err != nil {
		o.add(name, enforce.FSProtect, enforce.Inconclusive, err.Error())
		return o.probes
	}
	var live, staged []string
	for _, t := range s.options.Spec.Trees {
		switch {
		case t.Writable && mounted[t.Path] != "overlay":
			live = append(live, fmt.Sprintf("%q is a %s", t.Path, mounted[t.Path]))
		case t.Writable:
			staged = append(staged, t.Path)
		}
	}
	if len(live) > 0 {
		o.judge(name, enforce.FSProtect, false, strings.Join(live, "; "))
	} else {
		o.judge(name, enforce.FSProtect, true, fmt.Sprintf("%d writable trees, all overlays", len(staged)))
	}
	return o.probes
}

// stagedMechanisms replaces what keeps protected names in a live folder by what keeps them in a staged one.
func (s *Session) stagedMechanisms(m map[enforce.Wall][]enforce.Mechanism) {
	if !s.options.Staged {
		return
	}
	m[enforce.FSProtect] = slices.DeleteFunc(m[enforce.FSProtect], func(x enforce.Mechanism) bool { return x == enforce.Pins || x == enforce.Watch })
	for _, w := range []enforce.Wall{enforce.FSProtect, enforce.FSWrite, enforce.NetLocal} {
		m[w] = append(m[w], enforce.Staged)
	}
}

// maskStaged masks secret names that appeared in the host's folder of a staged tree since the last look: an overlay shows
// what is new in the folder below it. Protected names that appeared are the person's own, and nothing there is touched.
func (g *guard) maskStaged(ctx context.Context, t *guardedTree) error {
	for range maxPassesSettle {
		f, err := t.watcher.Sweep(ctx)
		var limit *treescan.LimitError
		if errors.As(err, &limit) && limit.What == "depth" {
			if err = g.session.cell.Cover(t.tree.Path, limit.At, enforce.CoverMask); err == nil {
				t.watcher.Forget(limit.At)
				continue
			}
		}
		if err != nil {
			return err
		}
		// The overlay may still believe that the name is absent, until the kernel forgets what it remembers of the folder.
		f.Secrets, t.unseen = append(f.Secrets, t.unseen...), nil
		if err := g.maskNew(ctx, t, f); err != nil {
			return err
		}
		for _, s := range f.Secrets {
			if t.covers[s.Rel] == "" && s.Target == "" && !goneOutside(t, s.Rel) {
				t.unseen = append(t.unseen, s)
			}
		}
		return nil
	}
	return errors.New("folders that are too deep to be looked at, in every pass")
}

// filesystems tells what is mounted where inside, the topmost mount of each place.
func (s *Session) filesystems() (map[string]string, error) {
	file := s.cell.MountInfo
	if file == nil {
		return nil, errors.New("the backend makes no mounts")
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return native.FileSystems(string(text))
}
