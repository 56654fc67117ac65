package probe

import (
	"path"

	"coworker/enforce"
)

// The names of the scratch repository that the battery attacks.
const (
	scratchConfig = ".git/config"
	scratchHooks  = ".git/hooks"
	scratchHook   = ".git/hooks/pre-commit"
	scratchMCP    = ".mcp.json"
	scratchEnv    = ".env"
	scratchConf   = "conf"
	scratchDeep   = "conf/.env"
)

// ScratchFiles lists the files that the supervisor puts into Targets.Scratch before it is
// mounted: enough of a repository for every kind of pin and mask. The secret is Targets.Secret.
func ScratchFiles(secret string) []enforce.File {
	return []enforce.File{
		{Path: ".git/HEAD", Data: []byte("ref: refs/heads/main\n"), Mode: 0o644},
		{Path: scratchConfig, Data: []byte("[core]\n\tbare = false\n"), Mode: 0o644},
		{Path: scratchHook, Data: []byte("#!/bin/sh\nexit 0\n"), Mode: 0o755},
		{Path: scratchMCP, Data: []byte("{}\n"), Mode: 0o644},
		{Path: scratchEnv, Data: []byte("TOKEN=" + secret + "\n"), Mode: 0o600},
		{Path: scratchDeep, Data: []byte("TOKEN=" + secret + "\n"), Mode: 0o600},
		{Path: "README", Data: []byte("A repository for probes.\n"), Mode: 0o644},
	}
}

// ScratchTree says how the scratch repository is covered: the same kinds of pins and masks as a
// repository of a person. Device and inode are the caller's to fill in.
func ScratchTree(dir string) enforce.Tree {
	return enforce.Tree{
		Path:      dir,
		Writable:  true,
		Pins:      []string{".git", scratchConf},
		Protected: []string{scratchConfig, scratchHooks, scratchMCP},
		Masks:     []string{scratchEnv, scratchDeep},
	}
}

// AbsentAttempt is one attempt to create protected names that do not exist in the scratch
// repository. In live mode the creation works and the supervisor's sweep has to undo it: the
// probe says Leaked, and becomes Swept when none of the paths exists after the sweep. In staged mode it works on a copy, and
// becomes Stopped when the folder outside is as it was.
type AbsentAttempt struct {
	Name  string   // name of the probe
	Paths []string // relative to the scratch repository, parents before children
}

// AbsentAttempts lists what the battery tries to create. Paths that have a child in the list are
// folders.
func AbsentAttempts() []AbsentAttempt {
	return []AbsentAttempt{
		{Name: "fs.protect/absent-vscode", Paths: []string{".vscode", ".vscode/tasks.json"}},
		{Name: "fs.protect/absent-claude", Paths: []string{".claude", ".claude/settings.json"}},
		{Name: "fs.protect/absent-git-commondir", Paths: []string{".git/commondir"}},
		{Name: "fs.protect/absent-husky", Paths: []string{".husky", ".husky/pre-commit"}},
		{Name: "fs.protect/absent-mcp", Paths: []string{"sub", "sub/.mcp.json"}},
	}
}

// folders returns the paths of the attempt that are the parent of another one.
func (a AbsentAttempt) folders() map[string]bool {
	dirs := map[string]bool{}
	for _, p := range a.Paths {
		for _, q := range a.Paths {
			dirs[p] = dirs[p] || path.Dir(q) == p
		}
	}
	return dirs
}
