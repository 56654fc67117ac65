package held

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
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
	reason, err := in.reason(rel, rule)
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

// reason says why a one-file rule holds a path; empty means that it may stay.
func (in Inspector) reason(rel string, rule protect.Rule) (string, error) {
	if rule.Check == protect.HoldAlways {
		return "made while a session ran: " + rule.Why, nil
	}
	limit := int64(maxPointer)
	if rule.Check == protect.HoldTodo || rule.Check == protect.HoldAttrs {
		limit = 4 << 20
	}
	data, _, err := in.Root.ReadFile(rel, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", err
	case err != nil: // a link, a folder, too long, unreadable: git would not have made it so
		return "not the plain file that git writes there", nil
	}
	text := strings.TrimRight(string(data), "\r\n")
	switch rule.Check {
	case protect.HoldCommon:
		dir := path.Base(path.Dir(path.Dir(rel)))
		if text == "../.." && dir == "worktrees" {
			return "", nil
		}
	case protect.HoldGitdir:
		if target, ok := in.inside(path.Dir(rel), text); ok && path.Base(target) == ".git" {
			return "", nil
		}
	case protect.HoldGitfile:
		target, found := strings.CutPrefix(text, "gitdir:")
		if dir, ok := in.inside(path.Dir(rel), strings.TrimSpace(target)); found && ok && in.isFolder(dir) {
			return "", nil
		}
	case protect.HoldAttrs:
		if !hasRules(data) {
			return "", nil
		}
	case protect.HoldTodo:
		if !protect.TodoExecutes(data) {
			return "", nil
		}
		return "holds lines that run a command on rebase --continue", nil
	}
	return "its content points outside the workspace or changes what git reads", nil
}

// inside resolves a path that git reads in a file of folder dir, lexically, and tells whether it stays in the workspace.
func (in Inspector) inside(dir, target string) (string, bool) {
	if target == "" || strings.ContainsAny(target, "\n\r\x00") {
		return "", false
	}
	root := path.Clean(in.Root.Name())
	if !path.IsAbs(target) {
		target = path.Join(root, dir, target)
	}
	rel, ok := strings.CutPrefix(path.Clean(target), strings.TrimSuffix(root, "/")+"/")
	return rel, ok && workfs.CheckPath(rel) == nil
}

// isFolder is false where a symlink stands on the way: the lexical answer would be wrong.
func (in Inspector) isFolder(rel string) bool {
	info, err := in.Root.Lstat(rel)
	return err == nil && info.Kind == workfs.Directory
}

func hasRules(attributes []byte) bool {
	for line := range bytes.Lines(attributes) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
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
	entries, err := gitconfig.Parse(data)
	if err != nil {
		return in.hold(ctx, rel, rule, err.Error())
	}
	var inert []gitconfig.Entry
	var names []string
	for _, e := range entries {
		if gitconfig.Classify(e) == gitconfig.Inert || in.ownWorktree(rel, e) {
			inert = append(inert, e)
		} else {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	reason := "holds keys that execute: " + strings.Join(names[:min(len(names), 8)], ", ")
	it, err := in.Store.HoldVersion(in.request(rel, rule, reason), info, data)
	if err != nil {
		return nil, err
	}
	return []Item{it}, withRights(in.request(rel, rule, reason), info, func() error {
		return in.Root.WriteFileAtomic(rel, gitconfig.Format(inert), info.Mode)
	})
}

// ownWorktree allows the core.worktree that git writes for a submodule: a folder in the workspace whose .git file points
// back to this very repository.
func (in Inspector) ownWorktree(config string, e gitconfig.Entry) bool {
	if e.Name != "core.worktree" || path.Base(config) != "config" {
		return false
	}
	gitdir := path.Dir(config)
	tree, ok := in.inside(gitdir, e.Value)
	if !ok || !in.isFolder(tree) {
		return false
	}
	data, _, err := in.Root.ReadFile(workfs.Join(tree, ".git"), maxPointer)
	if err != nil {
		return false
	}
	target, found := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir:")
	back, ok := in.inside(tree, strings.TrimSpace(target))
	return found && ok && back == gitdir
}
