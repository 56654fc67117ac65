package gitconfig

import "strings"

// quietCommands are the git commands that an alias may name. An alias without "!" can still execute: `difftool -x`,
// `rebase --exec`, `bisect run`, `submodule foreach`, `grep -O`, `fetch --upload-pack`, `--exec-path=DIR name`, and any
// name that is not a built-in command runs git-NAME from the path or another alias.
var quietCommands = map[string]bool{
	"add": true, "blame": true, "branch": true, "checkout": true, "cherry": true, "cherry-pick": true, "commit": true,
	"describe": true, "diff": true, "log": true, "ls-files": true, "merge": true, "reflog": true, "reset": true,
	"restore": true, "rev-list": true, "rev-parse": true, "shortlog": true, "show": true, "show-branch": true,
	"stash": true, "status": true, "switch": true, "tag": true, "whatchanged": true,
	"fetch": true, "pull": true, "push": true,
}

// quietTransport are the long options that an alias for fetch, pull or push may use: git accepts unique abbreviations, so
// a deny list would miss --upload-p.
var quietTransport = map[string]bool{
	"--all": true, "--prune": true, "--tags": true, "--no-tags": true, "--rebase": true, "--no-rebase": true,
	"--ff-only": true, "--ff": true, "--no-ff": true, "--force": true, "--force-with-lease": true, "--set-upstream": true,
	"--quiet": true, "--verbose": true, "--autostash": true, "--dry-run": true, "--follow-tags": true,
}

// alias allows an alias of one quiet command whose words cannot name a program or write a file.
func alias(e Entry) bool {
	words := strings.Fields(e.Value)
	if len(words) == 0 || !quietCommands[words[0]] || strings.ContainsAny(e.Value, "\\\n\r") {
		return false
	}
	transport := words[0] == "fetch" || words[0] == "pull" || words[0] == "push"
	for _, w := range words[1:] {
		w = strings.Trim(w, `"'`)
		option, _, _ := strings.Cut(w, "=")
		switch {
		case strings.ContainsAny(w, `"'`) && strings.HasPrefix(w, "-") && transport:
			return false
		case transport && !strings.HasPrefix(w, "-") && !remoteName(Entry{Value: w, HasValue: true}):
			return false // a URL or a path in place of a remote's name
		case transport && strings.HasPrefix(w, "--") && !quietTransport[option]:
			return false
		case transport && strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Trim(w, "-pfuvqat") != "":
			return false
		case words[0] == "merge" || words[0] == "cherry-pick":
			// -s NAME runs git-merge-NAME.
			if strings.HasPrefix(w, "-s") || strings.HasPrefix(w, "--s") {
				return false
			}
		case abbreviates(option, "--output"), abbreviates(option, "--ext-diff"), abbreviates(option, "--textconv"),
			abbreviates(option, "--exec"):
			return false // the first writes a file, the others run drivers
		}
	}
	return true
}

// abbreviates reports whether git would take option for full: it accepts any prefix that is unique.
func abbreviates(option, full string) bool {
	return len(option) > len("--") && strings.HasPrefix(full, option)
}
