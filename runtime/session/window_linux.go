package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/enforce/protect"
	"coworker/platform/gitconfig"
	"coworker/platform/workfs"
	"coworker/runtime/held"
	"coworker/runtime/treescan"
)

// lostCover is a pin or a mask that is no longer in the mount table.
type lostCover struct {
	tree *guardedTree
	rel  string
	kind enforce.CoverKind
}

// lost compares the mount table with what must be in it. A mount on a file falls off in every
// namespace when somebody outside renames another file over it, as git and editors do.
func (g *guard) lost() ([]lostCover, error) {
	file := g.session.cell.MountInfo
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	points, err := native.MountPoints(string(text))
	if err != nil {
		return nil, err
	}
	var out []lostCover
	for _, t := range g.trees {
		for rel, kind := range t.covers {
			if !points[path.Join(t.tree.Path, rel)] {
				out = append(out, lostCover{t, rel, kind})
			}
		}
	}
	slices.SortFunc(out, func(a, b lostCover) int { return bytes.Compare([]byte(a.rel), []byte(b.rel)) })
	return out, nil
}

// maxPasses bounds how often a repair starts again because the host replaced the file again.
const maxPasses = 1000

// window repairs what fell off: everything inside stops, the new bytes are judged, the cover goes
// back, and only then does anything run again. Each window is a row with its length.
func (g *guard) window() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := g.session.options.Now()
	lost, err := g.lost()
	if err != nil || len(lost) == 0 {
		return err
	}
	ctx := context.Background()
	var repaired []lostCover
	err = g.whileFrozen(func() error {
		for range maxPasses {
			for _, l := range lost {
				if err := g.repair(ctx, l.tree, l.rel, l.kind); err != nil {
					return fmt.Errorf("%s of %q: %w", l.kind, path.Join(l.tree.tree.Path, l.rel), err)
				}
			}
			repaired = append(repaired, lost...)
			if lost, err = g.lost(); err != nil || len(lost) == 0 {
				return err
			}
		}
		return errors.New("the host replaced it again in every pass")
	})
	if err != nil {
		return err
	}
	return g.recordWindow(ctx, repaired, g.session.options.Now().Sub(opened))
}

func (g *guard) recordWindow(ctx context.Context, repaired []lostCover, length time.Duration) error {
	var rows []Event
	for _, l := range repaired {
		e := Event{
			Stage: "window", Status: "restored", Resource: path.Join(l.tree.tree.Path, l.rel),
			Reason: fmt.Sprintf("%s fell off because the file was replaced outside; put back after %d µs", l.kind, length.Microseconds()),
		}
		if l.kind == enforce.CoverMask {
			e.Status = "possible-read"
		}
		rows = append(rows, e)
	}
	return g.session.record(ctx, rows...)
}

// repair judges what stands at the path now and covers it again.
func (g *guard) repair(ctx context.Context, t *guardedTree, rel string, kind enforce.CoverKind) error {
	for range maxPasses {
		gone, err := g.judge(ctx, t, rel, kind)
		if err != nil {
			return err
		}
		if gone {
			// From now on it is an absent name: the sweep watches for it.
			delete(t.covers, rel)
			delete(t.pinned, rel)
			if t.watcher != nil {
				t.watcher.Forget(rel)
			}
			return nil
		}
		err = g.session.cell.Cover(t.tree.Path, rel, kind)
		if err == nil {
			return nil
		}
		// ENOENT: the file was replaced between the look and the mount, which then had no place.
		if !errors.Is(err, fs.ErrNotExist) && !goneOutside(t, rel) {
			return err
		}
	}
	return errors.New("it came and went in every pass")
}

// judge looks at what stands at a path whose cover fell off. It reports true if nothing does.
func (g *guard) judge(ctx context.Context, t *guardedTree, rel string, kind enforce.CoverKind) (gone bool, err error) {
	info, err := t.root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) || info.Kind == workfs.Symlink && err == nil {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case kind != enforce.CoverReadOnly:
		return false, nil
	case info.Kind == workfs.Regular:
		return false, g.judgeFile(ctx, t, rel)
	case info.Kind == workfs.Directory:
		return g.judgeFolder(ctx, t, rel)
	}
	return false, fmt.Errorf("a %s stands where a protected path was", info.Kind)
}

// judgeFolder handles a protected folder that was replaced as a whole. The content rules for new
// names decide what stays. What stays is copied: a process inside may have opened the folder
// while its pin was off, and could still make files in it.
func (g *guard) judgeFolder(ctx context.Context, t *guardedTree, rel string) (gone bool, err error) {
	rule, ok := protect.Match(rel, true)
	if !ok {
		return false, fmt.Errorf("%q is no protected folder", rel)
	}
	found := []treescan.Protected{{Path: treescan.Path{Rel: rel, Kind: workfs.Directory}, Rule: rule}}
	items, err := g.inspector(t).Apply(ctx, found)
	if err = errors.Join(err, g.tell(ctx, t, items)); err != nil {
		return false, err
	}
	if goneOutside(t, rel) {
		return true, nil
	}
	side := rel + ".coworker-" + randomName(4)
	if _, err := t.root.CopyTo(rel, t.root, side, workfs.DefaultBounds); err != nil {
		return false, errors.Join(err, t.root.RemoveAll(side, workfs.DefaultBounds))
	}
	err = t.root.Exchange(side, rel)
	return false, errors.Join(err, t.root.RemoveAll(side, workfs.DefaultBounds))
}

// judgeFile compares the bytes with those last accepted. Inert git keys pass; anything else that
// changed is held, and the last accepted bytes stand again. The host may replace the file at the
// same moment, so files are exchanged, and what was displaced is judged too: nothing is lost.
// Accepted bytes move to a new file as well: a process inside may have opened the one that stands
// there, or mapped it, while its pin was off, and could write to it for ever.
func (g *guard) judgeFile(ctx context.Context, t *guardedTree, rel string) error {
	for range maxPasses {
		current, info, err := t.root.ReadFile(rel, maxPinned)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		want, reason := accepted(rel, t.pinned[rel], current)
		if reason == "" {
			t.pinned[rel] = want
			swapped, err := g.exchange(t, rel, want, current)
			if err != nil || swapped {
				return err
			}
			continue
		}
		request := held.Request{Root: t.root, Rel: rel, Session: g.session.id, Reason: reason, Rule: "window"}
		item, err := g.store.HoldVersion(request, info, current)
		if err != nil {
			return err
		}
		if err := g.tell(ctx, t, []held.Item{item}); err != nil {
			return err
		}
		t.pinned[rel] = want
		if swapped, err := g.exchange(t, rel, want, current); err != nil || swapped {
			return err
		}
	}
	return errors.New("the host replaced it again in every pass")
}

// accepted gives the bytes that may stand, and why the current ones may not; an empty reason
// means that they may.
func accepted(rel string, last, current []byte) (want []byte, reason string) {
	if last != nil && bytes.Equal(last, current) {
		return current, ""
	}
	rule, ok := protect.Match(rel, false)
	if !ok || rule.Check != protect.HoldConfig {
		return last, "replaced while a session ran, and the session could write it for a moment"
	}
	merged, keys, err := gitconfig.Merge(last, current)
	if err == nil && len(keys) == 0 && bytes.Equal(merged, current) {
		return current, ""
	}
	return merged, "git configuration that executes was set while a session could write it for a moment"
}

// exchange puts bytes at a path, in a new file. If another version than the one that was judged
// stands there by then, nothing changes and that one is judged in the next pass.
func (g *guard) exchange(t *guardedTree, rel string, want, judged []byte) (swapped bool, err error) {
	side := rel + ".coworker-" + randomName(4)
	info, err := t.root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := t.root.WriteFileAtomic(side, want, info.Mode.Perm()); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, t.root.RemoveAll(side, workfs.DefaultBounds)) }()
	if rule, ok := protect.Match(rel, false); ok && rule.Check == protect.HoldConfig {
		defer lockConfig(t, rel)()
	}
	now, _, err := t.root.ReadFile(rel, maxPinned)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(now, judged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := t.root.Exchange(side, rel); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	displaced, _, err := t.root.ReadFile(side, maxPinned)
	if err == nil && bytes.Equal(displaced, judged) {
		return true, nil
	}
	// A writer that takes no lock came between the look and the exchange.
	return false, errors.Join(err, t.root.Exchange(side, rel))
}

// lockConfig keeps git on the host from changing a configuration between the look at it and the
// exchange, by the name that git itself uses (a folder locks as well as a file: git creates with
// O_EXCL). It is held for some system calls, without a write to the disk among them. A lock that
// somebody keeps is not waited for long: the look at the displaced version is there in any case.
func lockConfig(t *guardedTree, rel string) (unlock func()) {
	lock := rel + ".lock"
	for range 50 {
		err := t.root.Mkdir(lock, 0o700)
		if err == nil {
			return func() { t.root.RemoveAll(lock, workfs.Bounds{Entries: 1, Depth: 1}) }
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() {}
}
