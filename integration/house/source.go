package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Budgets, measured on well-kept Go projects: p95 of files is under 700 lines and of functions under 65.
const (
	maxFileLines = 700
	maxFuncLines = 65
	maxNesting   = 4
	maxParams    = 5
)

// vague names say nothing about what belongs into a package, so everything ends up there.
var vague = []string{"util", "utils", "common", "helper", "helpers", "misc", "base"}

var (
	unfinished = regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X)\b`)
	badError   = regexp.MustCompile(`(?i)failed to |^error[ :]`)
)

// CheckSource applies the rules that one file or package can break alone.
func CheckSource(pkgs []*Package) []Violation {
	var out []Violation
	for _, p := range pkgs {
		out = append(out, checkPackage(p)...)
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			out = append(out, checkSizes(f)...)
			out = append(out, checkWords(f)...)
			out = append(out, checkSelectors(p, f)...)
			if within(p.Dir, "policy") && !f.Test {
				out = append(out, checkPure(f)...)
			}
		}
	}
	return merge(out)
}

// merge adds up countable breaches of one rule in one place, so that an exception can limit their number.
func merge(in []Violation) []Violation {
	at := map[[2]string]int{}
	var out []Violation
	for _, v := range in {
		k := [2]string{v.Rule, v.Key}
		if i, ok := at[k]; ok {
			out[i].Value += v.Value
			out[i].Detail += "; " + v.Detail
			continue
		}
		at[k] = len(out)
		out = append(out, v)
	}
	return out
}

func checkPackage(p *Package) []Violation {
	var out []Violation
	bad := func(rule, format string, args ...any) {
		out = append(out, Violation{Rule: rule, Key: p.Dir, Value: 1, Detail: fmt.Sprintf(format, args...)})
	}
	if slices.Contains(vague, p.Name()) || slices.Contains(vague, p.Dir[strings.LastIndex(p.Dir, "/")+1:]) {
		bad("package-name", "%q names no subject; name the package after what it provides", p.Name())
	}
	var docs []string
	for _, f := range p.Files {
		if f.AST.Doc != nil && (!f.Test || p.TestOnly()) {
			docs = append(docs, f.AST.Doc.Text())
		}
	}
	switch {
	case len(docs) != 1:
		bad("package-doc", "%d package doc comments, want exactly one: what it is for, who may import it, what must not be added", len(docs))
	case p.Name() == "main" || p.TestOnly():
	case !strings.HasPrefix(docs[0], "Package "+p.Name()+" "):
		bad("package-doc", "the doc comment must begin with %q", "Package "+p.Name())
	case !strings.Contains(docs[0], "import"):
		bad("package-doc", "the doc comment does not say who may import the package")
	}
	return out
}

func checkSizes(f *File) []Violation {
	var out []Violation
	if f.Lines > maxFileLines {
		out = append(out, Violation{"file-lines", f.Path, f.Lines, fmt.Sprintf("%d lines, at most %d", f.Lines, maxFileLines)})
	}
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		key := f.Path + ":" + funcName(fn)
		over := func(rule string, got, limit int) {
			if got > limit {
				out = append(out, Violation{rule, key, got, fmt.Sprintf("%s is %d, at most %d", rule, got, limit)})
			}
		}
		if !f.Test {
			over("func-lines", f.Fset.Position(fn.End()).Line-f.Fset.Position(fn.Pos()).Line+1, maxFuncLines)
		}
		over("params", fn.Type.Params.NumFields(), maxParams)
		if fn.Body != nil {
			over("nesting", nesting(fn.Body), maxNesting)
		}
		if at := contextAt(fn.Type.Params); at > 0 {
			out = append(out, Violation{"context-first", key, 1, fmt.Sprintf("context.Context is parameter %d; callers look for it first", at+1)})
		}
	}
	return out
}

// funcName is the name as people search for it: "Close" for functions, "(*Conn).Close" without the noise: "Conn.Close".
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// contextAt is the position of a context parameter, or -1. A *testing.T or testing.TB before it does not count.
func contextAt(params *ast.FieldList) int {
	at := 0
	for _, field := range params.List {
		switch typeName(field.Type) {
		case "context.Context":
			return at
		case "testing.T", "testing.TB", "testing.B", "testing.F", "testing.M":
			continue
		}
		at += max(1, len(field.Names))
	}
	return -1
}

func typeName(t ast.Expr) string {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if sel, ok := t.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

// nesting counts the control structures around the deepest statement. An else-if stays at its level, and a
// function literal starts anew: it is read as a function of its own.
func nesting(body ast.Node) int {
	deepest := 0
	var walk func(n ast.Node, depth int)
	walk = func(n ast.Node, depth int) {
		deepest = max(deepest, depth)
		ast.Inspect(n, func(c ast.Node) bool {
			switch x := c.(type) {
			case *ast.FuncLit:
				walk(x.Body, 0)
				return false
			case *ast.IfStmt:
				walkIf(x, depth, walk)
				return false
			case *ast.ForStmt:
				walk(x.Body, depth+1)
				return false
			case *ast.RangeStmt:
				walk(x.Body, depth+1)
				return false
			case *ast.SwitchStmt:
				walk(x.Body, depth+1)
				return false
			case *ast.TypeSwitchStmt:
				walk(x.Body, depth+1)
				return false
			case *ast.SelectStmt:
				walk(x.Body, depth+1)
				return false
			}
			return true
		})
	}
	walk(body, 0)
	return deepest
}

func walkIf(x *ast.IfStmt, depth int, walk func(ast.Node, int)) {
	walk(x.Body, depth+1)
	switch e := x.Else.(type) {
	case *ast.IfStmt:
		walkIf(e, depth, walk)
	case *ast.BlockStmt:
		walk(e, depth+1)
	}
}

func checkWords(f *File) []Violation {
	var out []Violation
	for _, group := range f.AST.Comments {
		for _, c := range group.List {
			if m := unfinished.FindString(c.Text); m != "" {
				out = append(out, Violation{"unfinished", f.Path, 1, fmt.Sprintf("line %d says %s: finish it or file an issue", f.Fset.Position(c.Pos()).Line, m)})
			}
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		if name := typeName(call.Fun); name != "errors.New" && name != "fmt.Errorf" {
			return true
		}
		lit, ok := call.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && badError.MatchString(text) {
			out = append(out, Violation{"error-text", f.Path, 1,
				fmt.Sprintf("line %d: %q says that something went wrong, which an error does anyway; say what, with which value", f.Fset.Position(lit.Pos()).Line, text)})
		}
		return true
	})
	return out
}

// checkSelectors finds uses of names from other packages that are tied to a folder.
func checkSelectors(p *Package, f *File) []Violation {
	var out []Violation
	runtimeName := importName(f, "runtime")
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && runtimeName != "" && x.Name == runtimeName && x.Obj == nil && sel.Sel.Name == "GOOS" && !within(p.Dir, systemFolders...) {
			out = append(out, Violation{"D5", f.Path, 1,
				fmt.Sprintf("line %d asks runtime.GOOS; only %s may: elsewhere use a _GOOS.go file there", f.Fset.Position(sel.Pos()).Line, strings.Join(systemFolders, ", "))})
		}
		return true
	})
	return out
}

// importName is the name an imported package goes by in this file, "" if it is not imported.
func importName(f *File, importPath string) string {
	for _, imp := range f.Imports {
		if imp.Path != importPath {
			continue
		}
		if imp.Name != "" {
			return imp.Name
		}
		return importPath[strings.LastIndex(importPath, "/")+1:]
	}
	return ""
}

// checkPure holds the half of D1 that imports do not show: no clock, no init, no package variable that changes.
func checkPure(f *File) []Violation {
	var out []Violation
	bad := func(n ast.Node, what string) {
		out = append(out, Violation{"D1", f.Path, 1,
			fmt.Sprintf("line %d %s; policy decides from values alone", f.Fset.Position(n.Pos()).Line, what)})
	}
	clock := importName(f, "time")
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		if fn.Recv == nil && fn.Name.Name == "init" {
			bad(fn, "has an init function")
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.SelectorExpr:
				id, ok := x.X.(*ast.Ident)
				if ok && clock != "" && id.Name == clock && id.Obj == nil && slices.Contains([]string{"Now", "Since", "Until", "After", "Tick", "Sleep", "NewTimer", "NewTicker", "AfterFunc", "Local"}, x.Sel.Name) {
					bad(x, "reads the clock")
				}
			case *ast.AssignStmt:
				for _, left := range x.Lhs {
					if x.Tok != token.DEFINE && isGlobal(f.AST, left) {
						bad(x, "changes a package variable")
					}
				}
			case *ast.IncDecStmt:
				if isGlobal(f.AST, x.X) {
					bad(x, "changes a package variable")
				}
			}
			return true
		})
	}
	return out
}

// isGlobal looks at the variable an assignment ends in. Identifiers that the parser did not resolve within the
// file belong to the package: parameters, results and locals are always resolved.
func isGlobal(file *ast.File, e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			if x.Name == "_" {
				return false
			}
			if x.Obj == nil {
				return true
			}
			return file.Scope.Lookup(x.Name) == x.Obj
		default:
			return false
		}
	}
}
