package house

import (
	"fmt"
	"slices"
	"strings"
)

// importRule judges one import of one file. from and to are folders relative to the module root for packages of
// the module ("platform/audit"); to is a full import path for everything else.
type importRule struct {
	name   string
	reason string
	tests  bool // also holds for _test.go files
	broken func(from, to string, own bool) bool
}

// direction is DESIGN.md section 5: cmd → runtime → {agent, connectors, netproxy, enforce, policy} → platform.
// A top folder may import what stands in its row and nothing else of the module.
var direction = map[string][]string{
	"platform":    {"platform"},
	"policy":      {"policy"},
	"enforce":     {"enforce", "platform"},
	"netproxy":    {"netproxy", "platform"},
	"agent":       {"agent", "policy", "platform"},
	"connectors":  {"connectors", "platform"},
	"runtime":     {"runtime", "agent", "connectors", "netproxy", "enforce", "policy", "platform"},
	"cmd":         {"cmd", "runtime", "agent", "connectors", "netproxy", "enforce", "policy", "platform"},
	"integration": {"integration", "runtime", "agent", "connectors", "netproxy", "enforce", "policy", "platform"},
}

// impure are standard packages through which a policy decision could depend on the machine it is made on.
// path/filepath is among them because its answers differ between operating systems.
var impure = []string{
	"os", "io/ioutil", "net", "net/http", "net/rpc", "net/smtp", "syscall", "unsafe", "plugin", "log", "log/syslog",
	"database/sql", "math/rand", "math/rand/v2", "crypto/rand", "runtime", "path/filepath", "testing", "expvar", "time/tzdata",
}

// cellImports is everything outside the standard library that the code behind the wall may import.
var cellImports = []string{
	"runtime/wire", "runtime/cell", "enforce/probe", "enforce/landlock", "enforce/seccomp", "enforce/native",
	"enforce/redirect", "golang.org/x/sys", "github.com/google/nftables", "github.com/creack/pty",
}

// cellVocabulary is exactly these packages, not what lies below them: the values that the wire carries and the switch of
// the fault-injection build. docs/decisions/0002 says why they were added to D4.
var cellVocabulary = []string{"enforce", "enforce/enforcetest"}

// cellNever is what must not be linked into the cell, however it gets there: a network client or a database
// behind the wall is a tool for whoever takes the cell over.
var cellNever = []string{
	"net/http", "net/rpc", "net/smtp", "crypto/tls", "database/sql", "modernc.org", "plugin",
	Module + "/policy", Module + "/agent", Module + "/netproxy", Module + "/connectors", Module + "/runtime/session",
	Module + "/platform/secret", Module + "/platform/audit", Module + "/platform/sqlite",
}

// systemFolders are the only places that talk to the kernel directly or ask which system this is.
var systemFolders = []string{
	"enforce", "runtime/cell", "runtime/session", "runtime/wallsd", "runtime/wire", "netproxy/transparent", "platform",
	"cmd/coworker-wallsd", "integration",
}

var importRules = []importRule{
	{"direction", "cmd → runtime → {agent, connectors, netproxy, enforce, policy} → platform: a lower folder that knows a higher one cannot be tested or replaced alone", true,
		func(from, to string, own bool) bool { return own && !within(to, direction[top(from)]...) }},
	{"D1", "policy decides from values alone: same input, same answer, so it imports only std without I/O, policy and the shell parser", false, policyImport},
	{"D2", "walls and decisions must not lean on each other: runtime/wallspec converts, netproxy asks through its Decider", true,
		func(from, to string, own bool) bool {
			return own && (within(from, "enforce", "netproxy") && within(to, "policy") || within(from, "policy") && within(to, "enforce", "netproxy"))
		}},
	{"D3", "the agent asks a Gate and cannot grant: no policy engine, walls, proxy or secrets in its reach", true,
		func(from, to string, own bool) bool {
			return own && within(from, "agent") && within(to, "policy/engine", "enforce", "netproxy", "platform/secret")
		}},
	{"D4", "the cell runs next to hostile code: it links what it needs to build and prove walls, and nothing else", false, cellImport},
	{"D5", "system calls and questions about the system stay in the folders that are reviewed for them", true,
		func(from, to string, _ bool) bool {
			return within(to, "golang.org/x/sys") && !within(from, systemFolders...)
		}},
	{"D6", "commands and end-to-end tests are ends: nothing imports cmd or integration, but a command its own sub-packages", true,
		func(from, to string, own bool) bool {
			return own && (within(to, "cmd") && !within(to, command(from)) || within(to, "integration") && !within(from, "integration"))
		}},
}

func policyImport(from, to string, own bool) bool {
	switch {
	case !within(from, "policy"):
		return false
	case own:
		return !within(to, "policy")
	case within(to, "mvdan.cc/sh"):
		return strings.HasSuffix(to, "/interp") // the interpreter runs commands
	case !isStd(to):
		return true
	}
	return slices.Contains(impure, to) || within(to, "os", "runtime", "testing", "log", "net/http")
}

func cellImport(from, to string, own bool) bool {
	if !within(from, "runtime/cell") {
		return false
	}
	if !own && isStd(to) {
		return within(to, cellNever...)
	}
	return !within(to, cellImports...) && !slices.Contains(cellVocabulary, to)
}

// CheckImports applies every rule to every file, then the rules that reach through other packages.
func CheckImports(pkgs []*Package) []Violation {
	var out []Violation
	for _, p := range pkgs {
		if p.Dir != "." && direction[top(p.Dir)] == nil {
			out = append(out, Violation{Rule: "direction", Key: p.Dir, Value: 1,
				Detail: "DESIGN.md section 5 has no such top folder, so nobody knows what it may import"})
		}
		for _, f := range p.Files {
			out = append(out, checkFile(p.Dir, f)...)
		}
	}
	return append(out, checkReach(pkgs)...)
}

func checkFile(from string, f *File) []Violation {
	var out []Violation
	for _, imp := range f.Imports {
		to, own := relative(imp.Path)
		for _, r := range importRules {
			if f.Test && !r.tests || !r.broken(from, to, own) {
				continue
			}
			out = append(out, Violation{Rule: r.name, Key: f.Path, Value: 1,
				Detail: fmt.Sprintf("line %d imports %q. Reason: %s", imp.Line, imp.Path, r.reason)})
		}
	}
	return out
}

// checkReach finds what the agent gets hold of through a package between (D3).
func checkReach(pkgs []*Package) []Violation {
	graph := map[string][]string{}
	for _, p := range pkgs {
		for _, f := range p.Files {
			for _, imp := range f.Imports {
				if to, own := relative(imp.Path); own && !f.Test {
					graph[p.Dir] = append(graph[p.Dir], to)
				}
			}
		}
	}
	var out []Violation
	for _, p := range pkgs {
		if !within(p.Dir, "agent") {
			continue
		}
		for to, via := range reach(graph, p.Dir) {
			if within(to, "policy/engine", "enforce", "netproxy") {
				out = append(out, Violation{Rule: "D3", Key: p.Dir, Value: 1,
					Detail: fmt.Sprintf("reaches %s through %s. The agent asks a Gate; it cannot grant", to, via)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Violation) int { return strings.Compare(a.Key+a.Detail, b.Key+b.Detail) })
	return out
}

// reach maps each package that from needs, directly or not, to the package that brought it in.
func reach(graph map[string][]string, from string) map[string]string {
	seen := map[string]string{}
	queue := []string{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, to := range graph[at] {
			if _, ok := seen[to]; !ok {
				seen[to] = at
				queue = append(queue, to)
			}
		}
	}
	return seen
}

// relative cuts the module path off; own says that the package belongs to the module.
func relative(importPath string) (rel string, own bool) {
	if importPath == Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, Module+"/")
}

// within says that p is one of the roots or lies below one.
func within(p string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") })
}

func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// command is the folder of the command that dir belongs to: "cmd/coworker" for "cmd/coworker/cli".
func command(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if len(parts) < 2 || parts[0] != "cmd" {
		return "no command"
	}
	return parts[0] + "/" + parts[1]
}

// isStd uses the go command's own test: import paths of the standard library have no dot in the first element.
func isStd(importPath string) bool { return !strings.Contains(top(importPath), ".") }
