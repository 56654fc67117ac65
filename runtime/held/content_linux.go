package held

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"

	"coworker/enforce/protect"
	"coworker/platform/gitconfig"
	"coworker/platform/workfs"
)

// View is a tree as the content rules read it: a workspace, or one with a session's staged changes on top.
type View interface {
	Name() string
	Lstat(rel string) (workfs.Info, error)
	ReadFile(rel string, max int64) ([]byte, workfs.Info, error)
}

// Reason says why a one-file rule holds a path; empty means that it may stay.
func Reason(v View, rel string, rule protect.Rule) (string, error) {
	if rule.Check == protect.HoldAlways {
		return "made while a session ran: " + rule.Why, nil
	}
	limit := int64(maxPointer)
	if rule.Check == protect.HoldTodo || rule.Check == protect.HoldAttrs {
		limit = 4 << 20
	}
	data, _, err := v.ReadFile(rel, limit)
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
		if target, ok := inside(v, path.Dir(rel), text); ok && path.Base(target) == ".git" {
			return "", nil
		}
	case protect.HoldGitfile:
		target, found := strings.CutPrefix(text, "gitdir:")
		if dir, ok := inside(v, path.Dir(rel), strings.TrimSpace(target)); found && ok && isFolder(v, dir) {
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
func inside(v View, dir, target string) (string, bool) {
	if target == "" || strings.ContainsAny(target, "\n\r\x00") {
		return "", false
	}
	root := path.Clean(v.Name())
	if !path.IsAbs(target) {
		target = path.Join(root, dir, target)
	}
	rel, ok := strings.CutPrefix(path.Clean(target), strings.TrimSuffix(root, "/")+"/")
	return rel, ok && workfs.CheckPath(rel) == nil
}

// isFolder is false where a symlink stands on the way: the lexical answer would be wrong.
func isFolder(v View, rel string) bool {
	info, err := v.Lstat(rel)
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

// Inert takes the executing keys out of a new configuration. The reason names them; it is empty if there are none. An error
// says that git could not read it either.
func Inert(v View, rel string, data []byte) (inert []byte, reason string, err error) {
	entries, err := gitconfig.Parse(data)
	if err != nil {
		return nil, "", err
	}
	var keep []gitconfig.Entry
	var names []string
	for _, e := range entries {
		if gitconfig.Classify(e) == gitconfig.Inert || ownWorktree(v, rel, e) {
			keep = append(keep, e)
		} else {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return data, "", nil
	}
	return gitconfig.Format(keep), "holds keys that execute: " + strings.Join(names[:min(len(names), 8)], ", "), nil
}

// ownWorktree allows the core.worktree that git writes for a submodule: a folder in the workspace whose .git file points
// back to this very repository.
func ownWorktree(v View, config string, e gitconfig.Entry) bool {
	if e.Name != "core.worktree" || path.Base(config) != "config" {
		return false
	}
	gitdir := path.Dir(config)
	tree, ok := inside(v, gitdir, e.Value)
	if !ok || !isFolder(v, tree) {
		return false
	}
	data, _, err := v.ReadFile(workfs.Join(tree, ".git"), maxPointer)
	if err != nil {
		return false
	}
	target, found := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir:")
	back, ok := inside(v, tree, strings.TrimSpace(target))
	return found && ok && back == gitdir
}
