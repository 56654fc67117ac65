package held

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"coworker/enforce/protect"
	"coworker/platform/gitconfig"
	"coworker/platform/workfs"
	"coworker/runtime/treescan"
)

// Inspector applies the content rules to protected names that newly appeared in one workspace. Names that only an attack or
// the person makes are held; what git itself writes for init, clone, worktree and submodule stays, without what executes.
// The cell must be stopped while it works: it reads a file, judges it and writes it in three steps.
type Inspector struct {
	Store   *Store
	Root    *workfs.Root
	Session string
}

const (
	maxPointer = 8 << 10 // commondir, gitdir, .git: one path
	maxHooks   = 4096
)

// Apply judges newly present protected paths and holds what must be held. It goes on after an error, so that one broken
// path does not leave the next one standing; the error says what still stands.
func (in Inspector) Apply(ctx context.Context, found []treescan.Protected) ([]Item, error) {
	var items []Item
	var errs []error
	for _, p := range found {
		got, err := in.judge(ctx, p.Rel, p.Rule)
		items = append(items, got...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s (%s): %w", p.Rel, p.Rule.Name, err))
		}
	}
	return items, errors.Join(errs...)
}

// Reopen gives the owner of folders that a sweep newly found unreadable the right to list them, so that the next sweep sees
// what they hide. The supervisor calls it for folders that appeared, or lost their rights, while a session ran; it changes
// nothing else about them.
func (in Inspector) Reopen(list []treescan.Unreadable) error {
	var errs []error
	for _, u := range list {
		if err := in.Root.Chmod(u.Rel, u.Mode|0o500); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Todos holds rebase to-do lists that would execute a command; the supervisor calls it when a session ends.
func (in Inspector) Todos(ctx context.Context, rels []string) ([]Item, error) {
	rule := protect.Rule{Name: ".git/rebase-*/git-rebase-todo", Check: protect.HoldTodo}
	var found []treescan.Protected
	for _, rel := range rels {
		found = append(found, treescan.Protected{Path: treescan.Path{Rel: rel}, Rule: rule})
	}
	return in.Apply(ctx, found)
}

func (in Inspector) judge(ctx context.Context, rel string, rule protect.Rule) ([]Item, error) {
	switch rule.Check {
	case protect.HoldHooks:
		return in.hooks(ctx, rel, rule)
	case protect.HoldConfig:
		return in.config(ctx, rel, rule)
	}
	reason, err := Reason(in.Root, rel, rule)
	if reason == "" || err != nil {
		return nil, err
	}
	return in.hold(ctx, rel, rule, reason)
}

func (in Inspector) hold(ctx context.Context, rel string, rule protect.Rule, reason string) ([]Item, error) {
	it, err := in.Store.Hold(ctx, in.request(rel, rule, reason))
	if err != nil {
		return nil, err
	}
	return []Item{it}, nil
}

func (in Inspector) request(rel string, rule protect.Rule, reason string) Request {
	return Request{Root: in.Root, Rel: rel, Session: in.Session, Reason: reason, Rule: rule.Name}
}

// hooks holds every entry of a hooks folder that is not a stock sample.
func (in Inspector) hooks(ctx context.Context, rel string, rule protect.Rule) ([]Item, error) {
	info, err := in.Root.Lstat(rel)
	if err != nil {
		return nil, err
	}
	if info.Kind != workfs.Directory {
		return in.hold(ctx, rel, rule, "not a folder")
	}
	list, err := in.Root.ReadDir(rel, maxHooks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return in.hold(ctx, rel, rule, "cannot be looked through")
	}
	var items []Item
	for _, e := range list {
		if e.Kind == workfs.Regular && strings.HasSuffix(e.Name, ".sample") {
			continue
		}
		got, err := in.hold(ctx, workfs.Join(rel, e.Name), rule, "a hook that git would run")
		items = append(items, got...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return items, err
		}
	}
	return items, nil
}

// config takes the executing keys out of a configuration; the version with them is held.
func (in Inspector) config(ctx context.Context, rel string, rule protect.Rule) ([]Item, error) {
	data, info, err := in.Root.ReadFile(rel, gitconfig.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return in.hold(ctx, rel, rule, "not the plain file that git writes there")
	}
	inert, reason, err := Inert(in.Root, rel, data)
	if err != nil {
		return in.hold(ctx, rel, rule, err.Error())
	}
	if reason == "" {
		return nil, nil
	}
	it, err := in.Store.HoldVersion(in.request(rel, rule, reason), info, data)
	if err != nil {
		return nil, err
	}
	return []Item{it}, withRights(in.request(rel, rule, reason), info, func() error {
		return in.Root.WriteFileAtomic(rel, inert, info.Mode)
	})
}
