// Package protect is the table of names that no tool may write in a writable tree unless a person named them: files that
// some other program on the person's machine executes, or obeys, the next time it runs there.
//
// It is pure: names in, rules out. A walk keeps one State per folder and pays O(1) for each entry; Match does the same for
// one path. Who imports it: runtime/treescan and runtime/held, the wall builders, and runtime/wallspec. It imports the
// standard library only. What must not be added: file access, and rules about what may be read (enforce/hide).
package protect

import (
	"slices"
	"strings"
)

// Check says how a protected name that newly appeared is judged. Honest work makes some of them: `git init nested`, `git
// clone`, `git worktree add`; those are inspected and held only if the content executes something.
type Check uint8

// The ways to judge a newly appeared name.
const (
	HoldAlways  Check = iota // the name alone decides
	HoldHooks                // hooks folder: entries that are not *.sample
	HoldConfig               // git config: keys that execute
	HoldCommon               // commondir: anything but the link that worktree add writes
	HoldGitdir               // worktrees/*/gitdir: a path that leaves the tree
	HoldGitfile              // .git file: a gitdir that leaves the tree
	HoldAttrs                // info/attributes: any line that is not a comment
	HoldTodo                 // rebase to-do list: lines that execute
)

// Rule is one protected name.
type Rule struct {
	Name   string // pattern as a person reads it
	Folder bool   // the whole subtree is protected, not one file
	Check  Check
	AtEnd  bool   // never pinned, only checked when the session ends: git itself must write it
	Tool   string // who executes it
	Why    string
}

// State is what a folder is, for the names in it.
type State uint8

// Tree is the state of a tree's root and of every ordinary folder.
const (
	Tree      State = iota
	Inside          // below a protected folder: everything here belongs to it
	GitDir          // .git, or any folder that git would take for a repository
	gitInfo         // .git/info
	gitTrees        // .git/worktrees
	gitTree         // .git/worktrees/NAME
	gitMods         // .git/modules: names of submodules may hold slashes
	gitMod          // .git/modules/… at any depth
	gitRebase       // .git/rebase-merge, .git/rebase-apply
	vscode
	github
	states
)

// next tells what a name in a folder is: a protected rule, or a folder with rules of its own.
type next struct {
	rule  *Rule
	state State
}

var (
	hooks      = &Rule{Name: ".git/hooks", Folder: true, Check: HoldHooks, Tool: "git", Why: "git runs hooks on commit, checkout, merge and push"}
	gitConfig  = &Rule{Name: ".git/config", Check: HoldConfig, Tool: "git", Why: "core.fsmonitor, core.hooksPath, filters, aliases and many more run programs"}
	wtConfig   = &Rule{Name: ".git/config.worktree", Check: HoldConfig, Tool: "git", Why: "read as configuration when extensions.worktreeConfig is set"}
	commonDir  = &Rule{Name: ".git/commondir", Check: HoldCommon, Tool: "git", Why: "points git at another folder's config and hooks"}
	attributes = &Rule{Name: ".git/info/attributes", Check: HoldAttrs, Tool: "git", Why: "selects filters and drivers of the person's own configuration, unseen by a diff"}
	wtGitdir   = &Rule{Name: ".git/worktrees/*/gitdir", Check: HoldGitdir, Tool: "git", Why: "git worktree remove, repair and prune act on the path in it"}
	gitFile    = &Rule{Name: ".git (file)", Check: HoldGitfile, Tool: "git", Why: "sends git to another repository with other config and hooks"}
	rebaseTodo = &Rule{Name: ".git/rebase-*/git-rebase-todo", Check: HoldTodo, AtEnd: true, Tool: "git", Why: "git rebase --continue runs its exec lines"}

	vscodeRule = &Rule{Name: ".vscode/{tasks,settings,launch,mcp}.json", Tool: "VS Code and its forks", Why: "tasks run on folder open; settings name interpreters; launch and mcp start programs"}
	workflows  = &Rule{Name: ".github/workflows", Folder: true, Tool: "GitHub Actions", Why: "runs with the repository's secrets after the next push"}
	ghHooks    = &Rule{Name: ".github/hooks", Folder: true, Tool: "GitHub Copilot", Why: "agent hooks are shell commands"}
)

func folder(name, tool, why string) *Rule {
	return &Rule{Name: name, Folder: true, Tool: tool, Why: why}
}
func file(name, tool, why string) *Rule { return &Rule{Name: name, Tool: tool, Why: why} }

// anywhere holds the names that count in every folder. Every key starts with a dot; Enter relies on it.
var anywhere = map[string]next{
	".git":           {gitFile, GitDir},
	".vscode":        {nil, vscode},
	".github":        {nil, github},
	".coworker":      {folder(".coworker", "coworker", "project configuration and skills of this program"), Inside},
	".claude":        {folder(".claude", "Claude Code", "settings hold hooks that run shell commands"), Inside},
	".codex":         {folder(".codex", "Codex", "configuration names MCP servers and notify programs"), Inside},
	".gemini":        {folder(".gemini", "Gemini CLI", "settings name MCP servers, hooks and extensions"), Inside},
	".agents":        {folder(".agents", "several agents", "skills and instructions with programs, loaded at start"), Inside},
	".cursor":        {folder(".cursor", "Cursor", "mcp.json and hooks.json start programs"), Inside},
	".mcp.json":      {file(".mcp.json", "MCP clients", "every server entry is a command line"), Inside},
	".idea":          {folder(".idea", "JetBrains IDEs", "run configurations, external tools and start-up tasks"), Inside},
	".husky":         {folder(".husky", "git through husky", "its files are git hooks"), Inside},
	".envrc":         {file(".envrc", "direnv", "a shell script that runs on cd once allowed"), Inside},
	".devcontainer":  {folder(".devcontainer", "dev containers", "initializeCommand runs on the host"), Inside},
	".gitlab-ci.yml": {file(".gitlab-ci.yml", "GitLab CI", "runs with the project's secrets after the next push"), Inside},
}

// inGit holds the names of a git directory.
var inGit = map[string]next{
	"hooks":           {hooks, Inside},
	"config":          {gitConfig, Inside},
	"config.worktree": {wtConfig, Inside},
	"commondir":       {commonDir, Inside},
	"info":            {nil, gitInfo},
	"worktrees":       {nil, gitTrees},
	"modules":         {nil, gitMods},
	"rebase-merge":    {nil, gitRebase},
	"rebase-apply":    {nil, gitRebase},
}

var special = [states]map[string]next{
	GitDir:    inGit,
	gitInfo:   {"attributes": {attributes, Inside}},
	gitTree:   inGit,
	gitMod:    inGit,
	gitRebase: {"git-rebase-todo": {rebaseTodo, Inside}},
	vscode: {
		"tasks.json": {vscodeRule, Inside}, "settings.json": {vscodeRule, Inside},
		"launch.json": {vscodeRule, Inside}, "mcp.json": {vscodeRule, Inside},
	},
	github: {"workflows": {workflows, Inside}, "hooks": {ghHooks, Inside}},
}

// Rules lists every rule once, for documentation and status output.
func Rules() []Rule {
	seen := map[*Rule]bool{wtGitdir: true}
	list := []Rule{*wtGitdir}
	add := func(table map[string]next) {
		for _, name := range sortedKeys(table) {
			if r := table[name].rule; r != nil && !seen[r] {
				seen[r] = true
				list = append(list, *r)
			}
		}
	}
	for _, table := range special {
		add(table)
	}
	add(anywhere)
	return list
}

// Enter classifies one name in a folder of state s. It returns the rule that protects it, or nil, and the state for the
// names below it if it is a folder. Below a protected folder the rule is nil: the walker knows which folder it is in.
func (s State) Enter(name string, dir bool) (*Rule, State) {
	if s == Inside {
		return nil, Inside
	}
	if s >= states {
		return nil, Tree
	}
	key := fold(name)
	if table := special[s]; table != nil {
		if n, ok := table[key]; ok {
			return n.in(s, dir)
		}
	}
	if s == gitTree && key == "gitdir" {
		return wtGitdir, Inside
	}
	if key != "" && key[0] == '.' {
		if n, ok := anywhere[key]; ok {
			return n.in(s, dir)
		}
	}
	return nil, s.child()
}

// in applies an entry of the tables to what is really there.
func (n next) in(s State, dir bool) (*Rule, State) {
	switch {
	case n.rule == gitFile && dir:
		return nil, GitDir
	case n.rule == nil && !dir:
		// A file or a symlink where git expects its own folder. A symlink named .vscode, .github or .git/info would
		// lead the tool elsewhere, so the walker asks Redirects as well.
		return nil, s.child()
	}
	return n.rule, n.state
}

// child is the state of an ordinary folder below one of state s.
func (s State) child() State {
	switch s {
	case gitTrees:
		return gitTree
	case gitMods, gitMod:
		return gitMod
	}
	return Tree
}

// redirect protects a name that should be a folder with rules but is a link: the tool follows it to names we do not watch.
var redirect = &Rule{Name: "a link in place of .vscode, .github or a folder of .git", Tool: "git, editors, CI", Why: "leads the tool to files under other names"}

// Redirects returns a rule if name, which is a symlink in a folder of state s, stands where a folder with protected names
// belongs.
func (s State) Redirects(name string) *Rule {
	if s == Inside || s >= states {
		return nil
	}
	key := fold(name)
	if n, ok := special[s][key]; ok && n.rule == nil {
		return redirect
	}
	if n, ok := anywhere[key]; ok && n.rule == nil {
		return redirect
	}
	if s == gitTrees || s == gitMods {
		return redirect
	}
	return nil
}

// Match tells whether rel, relative to a tree's root, is protected, and by which rule. dir says whether it is (or would be)
// a folder; if that is not known pass false, which is the strict answer for .git. A repository layout in a folder of
// another name cannot be seen from one path: see Layout.
func Match(rel string, dir bool) (Rule, bool) {
	s := Tree
	for rel != "" {
		name, rest, more := strings.Cut(rel, "/")
		rel = rest
		if name == "" || name == "." {
			continue
		}
		rule, below := s.Enter(name, more || dir)
		if rule != nil {
			return *rule, true
		}
		s = below
	}
	return Rule{}, false
}

// Layout collects the names of one folder that together make git take it for a repository (setup.c is_git_directory: a HEAD
// with objects and refs, the latter two possibly behind commondir). Any folder, also a nested one, works for git once the
// person's shell stands in it.
type Layout uint8

const (
	hasHead Layout = 1 << iota
	hasObjects
	hasRefs
	hasCommon
)

// Add notes one name of the folder.
func (l *Layout) Add(name string) {
	// Lengths first: almost every name fails here. A folded name can be longer or shorter than its ASCII form.
	if n := len(name); n != 4 && n != 7 && n != 9 && isASCII(name) {
		return
	}
	switch fold(name) {
	case "head":
		*l |= hasHead
	case "objects":
		*l |= hasObjects
	case "refs":
		*l |= hasRefs
	case "commondir":
		*l |= hasCommon
	}
}

// GitDir reports whether git would take the folder for a repository.
func (l Layout) GitDir() bool {
	return l&hasHead != 0 && (l&hasCommon != 0 || l&(hasObjects|hasRefs) == hasObjects|hasRefs)
}

// AsGitDir is the state of a folder with a repository layout.
func (s State) AsGitDir() State {
	switch s {
	case Tree, gitMods, vscode, github, gitInfo, gitTrees, gitRebase:
		return GitDir
	}
	return s
}

// States is how many states there are; each State below it is one.
const States = int(states)

// Names lists, folded, every name that Enter knows in any state. With Enter this is the whole machine: each other name is
// like each other.
func Names() []string {
	seen := map[string]bool{"gitdir": true}
	for _, table := range append(special[:], anywhere) {
		for name := range table {
			seen[name] = true
		}
	}
	list := make([]string, 0, len(seen))
	for name := range seen {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
