package house

import (
	"bufio"
	"fmt"
	"go/ast"
	"io"
	"slices"
	"strings"
)

// Skip is one test that may be skipped. At run time Name covers the test and its subtests; in the source it is
// the function that calls Skip.
type Skip struct {
	Package, Name, Reason string
	WithoutRoot           bool // only a run that is not root may skip it
	Line                  int
}

// ParseSkips reads lines of "PACKAGE NAME REASON…", PACKAGE relative to the module. A reason that begins with
// "without-root:" counts only where the suite does not run as root, so never in CI.
func ParseSkips(r io.Reader) ([]Skip, error) {
	var out []Skip
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("line %d: want PACKAGE NAME and a reason of at least four words, have %q", n, line)
		}
		out = append(out, Skip{Package: f[0], Name: f[1], Reason: strings.Join(f[2:], " "), WithoutRoot: f[2] == "without-root:", Line: n})
	}
	return out, sc.Err()
}

// Allowed says whether the test of the package (full import path) may be skipped by a suite that runs as root or not.
func Allowed(skips []Skip, importPath, test string, root bool) bool {
	rel, _ := relative(importPath)
	return slices.ContainsFunc(skips, func(s Skip) bool {
		return s.Package == rel && within(test, s.Name) && !(s.WithoutRoot && root)
	})
}

// CheckSkips compares the calls of Skip in the source with the list, both ways. It sees what a run on one machine
// does not: a skip whose condition happens to be false here.
func CheckSkips(pkgs []*Package, skips []Skip) []string {
	var out []string
	used := map[int]bool{}
	for _, p := range pkgs {
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !callsSkip(f, fn) {
					continue
				}
				i := slices.IndexFunc(skips, func(s Skip) bool { return s.Package == p.Dir && top(s.Name) == funcName(fn) })
				if i < 0 {
					out = append(out, fmt.Sprintf("%s: %s skips, but integration/skips.txt does not list it with a reason: a test that does not run proves nothing", f.Path, funcName(fn)))
					continue
				}
				used[skips[i].Line] = true
			}
		}
	}
	for _, s := range skips {
		if !used[s.Line] && !callsListedHelper(pkgs, s) {
			out = append(out, fmt.Sprintf("integration/skips.txt:%d: %s %s skips nothing any more, remove it", s.Line, s.Package, s.Name))
		}
	}
	return out
}

// callsSkip sees t.Skip and its kin on anything declared as a testing type, and testing.Short, which is the same
// thing in other words.
func callsSkip(f *File, fn *ast.FuncDecl) bool {
	if importName(f, "testing") == "" || fn.Body == nil {
		return false
	}
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		found = found || name == "Skip" || name == "Skipf" || name == "SkipNow" || typeName(sel) == "testing.Short"
		return true
	})
	return found
}

// callsListedHelper keeps the entry of a test that is skipped by a listed function it calls: the test must exist,
// and something in its package must still skip.
func callsListedHelper(pkgs []*Package, s Skip) bool {
	exists, skips := false, false
	for _, p := range pkgs {
		if p.Dir != s.Package {
			continue
		}
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				exists = exists || f.Test && fn.Name.Name == top(s.Name)
				skips = skips || fn.Name.Name != top(s.Name) && callsSkip(f, fn)
			}
		}
	}
	return exists && skips
}
