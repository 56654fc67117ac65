package protect

import (
	"strings"
	"testing"
)

var protectedPaths = []string{
	".git/hooks", ".git/hooks/pre-commit", ".git/config", ".git/info/attributes", ".git/commondir", ".git/config.worktree",
	".git/worktrees/w/config.worktree", ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir", ".git/worktrees/w/hooks/x",
	".git/modules/m/hooks", ".git/modules/m/config", ".git/modules/a/b/c/hooks/x", ".git/modules/a/b/config", ".git/modules/m/modules/n/config",
	".git/modules/m/info/attributes", ".git/modules/m/worktrees/w/gitdir",
	".coworker", ".coworker/x", ".claude/settings.json", ".codex/a", ".gemini", ".agents/x/y", ".cursor/mcp.json", ".mcp.json",
	".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".idea/x", ".husky/pre-commit", ".envrc", ".devcontainer/devcontainer.json",
	".github/workflows/ci.yml", ".gitlab-ci.yml", ".github/hooks/x", ".git",
	".git/rebase-merge/git-rebase-todo", ".git/worktrees/w/rebase-merge/git-rebase-todo",
}

var ordinaryPaths = []string{
	"", "a", "src/main.go", ".gitmodules", ".gitignore", ".gitattributes", ".github/CODEOWNERS", ".github/dependabot.yml", ".vscode/extensions.json",
	".git/index", ".git/HEAD", ".git/objects/ab/cdef", ".git/refs/heads/config", ".git/refs/heads/hooks", ".git/info/exclude", ".git/info/sparse-checkout",
	".git/logs/HEAD", ".git/worktrees/w/HEAD", ".git/modules/hooks/HEAD", ".git/modules/config/index", "hooks/pre-commit", "config", "claude", "x.claude",
	".claudex", ".envrc.example", "vscode/tasks.json", "git/config", ".gitx/config", ".git.bak/config", ".github/x/workflows", "commondir", ".git/COMMIT_EDITMSG",
}

func TestMatch(t *testing.T) {
	prefixes := []string{"", "sub/", "a/b/c/d/e/f/g/h/", "node_modules/x/", "-rf/", "a\nb/", "\xff/"}
	for _, prefix := range prefixes {
		for _, p := range protectedPaths {
			if _, ok := Match(prefix+p, false); !ok {
				t.Errorf("Match(%q) = false", prefix+p)
			}
		}
		for _, p := range ordinaryPaths {
			if r, ok := Match(prefix+p, false); ok && p != "" {
				t.Errorf("Match(%q) = %s", prefix+p, r.Name)
			}
		}
	}
	if _, ok := Match("a/.git", true); ok {
		t.Error("a .git folder is protected as a whole")
	}
}

func TestMatchOtherCase(t *testing.T) {
	for _, p := range []string{
		".GIT/config", ".Git/HOOKS/x", ".git/Config", ".MCP.json", ".VSCode/Tasks.JSON", ".GitHub/Workflows/x", ".CLAUDE", ".gitlab-CI.yml",
		".git/hook\u017f", ".git/hoo\u212as/x", ".hu\u017f\u212ay/x", ".v\u017fcode/ta\u017fks.json", ".git/con\ufb01g", ".github/work\ufb02ows",
		".git/worktree\u017f/w/gitdir", ".g\u200cit/config", "\u200b.git/config", ".git\ufeff/hooks", ".git/\u2060config", ".mcp.j\u00adson",
		".git./config", ".git /config", ".git::$INDEX_ALLOCATION/config", "git~1/config", "GIT~1/hooks", ".claude. ", ".mcp.json:x", ".ENVRC", ".IDEA",
	} {
		if _, ok := Match(p, false); !ok {
			t.Errorf("Match(%q) = false", p)
		}
	}
	for _, p := range []string{".\u0131dea", ".gi\u0288/config", ".c\u013aaude", ".\uff47it/config", ".git\xff/config"} {
		if r, ok := Match(p, false); ok {
			t.Errorf("Match(%q) = %s: no file system folds that", p, r.Name)
		}
	}
}

func TestLayout(t *testing.T) {
	tests := []struct {
		names string
		want  bool
	}{
		{"HEAD config objects refs", true}, {"HEAD objects refs", true}, {"head OBJECTS Refs", true}, {"HEAD commondir", true}, {"HEAD ref\u017f objects", true},
		{"objects refs config", false}, {"HEAD config", false}, {"HEAD objects", false}, {"README.md src", false}, {"commondir objects refs", false},
	}
	for _, tt := range tests {
		var l Layout
		for _, n := range strings.Fields(tt.names) {
			l.Add(n)
		}
		if l.GitDir() != tt.want {
			t.Errorf("%s: %v", tt.names, l.GitDir())
		}
	}
	if rule, _ := Tree.AsGitDir().Enter("config", false); rule == nil {
		t.Error("config of a bare repository is not protected")
	}
	if rule, _ := Tree.Enter("config", false); rule != nil {
		t.Error("config of any folder is protected")
	}
}

func TestLinksInPlaceOfFolders(t *testing.T) {
	for _, name := range []string{".vscode", ".github", ".VSCODE"} {
		if Tree.Redirects(name) == nil {
			t.Errorf("%s", name)
		}
	}
	for _, name := range []string{"info", "worktrees", "modules", "rebase-merge"} {
		if GitDir.Redirects(name) == nil {
			t.Errorf(".git/%s", name)
		}
	}
	if Tree.Redirects("src") != nil || Tree.Redirects("info") != nil {
		t.Error("an ordinary link is protected")
	}
	if rule, _ := Tree.Enter(".git", false); rule == nil {
		t.Error("a .git link is not protected")
	}
}

func TestEveryRuleSaysWhy(t *testing.T) {
	rules := Rules()
	if len(rules) < 20 {
		t.Errorf("only %d rules", len(rules))
	}
	for _, r := range rules {
		if r.Name == "" || r.Why == "" || r.Tool == "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestTodoExecutes(t *testing.T) {
	for _, todo := range []string{
		"", "\n\n", "# Rebase\n", "pick abc x\n", "p abc\nr abc\ne abc\ns abc\nf -C abc\nd abc\nb\nbreak\nnoop\nl x\nlabel x\nt x\nreset x\nm -C a b\nupdate-ref refs/x\nu refs/x\n",
		"pick abc exec x\n", "  pick abc\n", "; comment\n", "\tdrop abc", "pick abc\r\n",
	} {
		if TodoExecutes([]byte(todo)) {
			t.Errorf("%q executes", todo)
		}
	}
	for _, todo := range []string{
		"exec make\n", "x make\n", "pick abc\n  x make", "pick abc\n\texec\tmake\n", "x\tmake", "x", "exec", "EXEC x\n", "foo\n", "pick abc\rx make\n",
		"pick\x00abc\n", "\vx make\n", "pickabc\n", "\xffx y\n", "1 abc\n", strings.Repeat("#\n", maxTodo),
	} {
		if !TodoExecutes([]byte(todo)) {
			t.Errorf("%.20q is harmless", todo)
		}
	}
}

// FuzzMatch: a protected path stays protected below any prefix, in upper case, and with anything appended below it.
func FuzzMatch(f *testing.F) {
	for i := range protectedPaths {
		f.Add(uint8(i), "a/b", "c")
	}
	for _, p := range ordinaryPaths {
		f.Add(uint8(0), p, p)
	}
	f.Fuzz(func(t *testing.T, i uint8, prefix, suffix string) {
		Match(prefix, true)
		Match(suffix, false)
		if strings.Count(prefix, "/") > 100 || strings.Contains(strings.ToLower(prefix), "git") {
			return // inside a git directory other names count
		}
		p := prefix + "/" + protectedPaths[int(i)%len(protectedPaths)]
		if _, ok := Match(p, false); !ok {
			t.Errorf("%q", p)
		}
		if _, ok := Match(prefix+"/"+strings.ToUpper(protectedPaths[int(i)%len(protectedPaths)]), false); !ok {
			t.Errorf("upper case of %q", p)
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	names := []string{"main.go", "index.js", "README.md", ".git", "package.json", ".gitignore", "node_modules", "a-rather-long-file-name.test.ts"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var l Layout
		name := names[i%len(names)]
		Tree.Enter(name, false)
		l.Add(name)
	}
}
