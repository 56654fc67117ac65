// Package house checks the rules of the house: who may import whom, how long a file or a function may be, what
// may not be written into the tree. Each rule carries its reason, so that a red test explains itself.
//
// Only the tests in this folder and the commands below it import it; production code never does (rule D6). What
// does not belong here: tests of behaviour, and rules that gofmt, vet or staticcheck already hold.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the module path; import paths below it are checked folder by folder.
const Module = "coworker"

// File is one parsed Go file, whatever its build constraints say: a rule that holds on Linux only would be
// broken by the first _windows.go file.
type File struct {
	Path      string // slash-separated, relative to the module root
	AST       *ast.File
	Fset      *token.FileSet
	Lines     int
	Test      bool
	Generated bool
	Imports   []Import
}

// Import is one import of a file, with the name it goes by there ("" when not renamed).
type Import struct {
	Path, Name string
	Line       int
}

// Package is one folder that holds Go files.
type Package struct {
	Dir   string // slash-separated, relative to the module root; "." is the root
	Files []*File
}

// Path is the import path of the package.
func (p *Package) Path() string { return path.Join(Module, p.Dir) }

// Name is the package clause; for a folder with tests only it is the clause of the tests.
func (p *Package) Name() string {
	for _, f := range p.Files {
		if !f.Test {
			return f.AST.Name.Name
		}
	}
	return p.Files[0].AST.Name.Name
}

// TestOnly says that the folder holds nothing that could be imported.
func (p *Package) TestOnly() bool {
	return !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
}

// Root returns the folder that holds go.mod, looking upwards from the working directory of the test.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod in the working directory or above it")
		}
		dir = up
	}
}

// Load parses every Go file below root that the go command would look at for some platform.
func Load(root string) ([]*Package, error) {
	byDir := map[string]*Package{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && ignoredDir(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(d.Name(), "_") || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := Parse(fset, filepath.ToSlash(rel), src)
		if err != nil {
			return err
		}
		add(byDir, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sorted(byDir), nil
}

// ignoredDir follows the go command (testdata, names that start with a dot or underscore) and leaves out bin.
func ignoredDir(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || name == "bin" ||
		strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// Parse reads one file. Objects are resolved because the rule about globals needs scopes.
func Parse(fset *token.FileSet, name string, src []byte) (*File, error) {
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	f := &File{
		Path: name, AST: tree, Fset: fset,
		Lines:     bytes.Count(src, []byte("\n")),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
	}
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		imp := Import{Path: p, Line: fset.Position(spec.Pos()).Line}
		if spec.Name != nil {
			imp.Name = spec.Name.Name
		}
		f.Imports = append(f.Imports, imp)
	}
	return f, nil
}

func add(byDir map[string]*Package, f *File) {
	dir := path.Dir(f.Path)
	if byDir[dir] == nil {
		byDir[dir] = &Package{Dir: dir}
	}
	byDir[dir].Files = append(byDir[dir].Files, f)
}

func sorted(byDir map[string]*Package) []*Package {
	var out []*Package
	for _, p := range byDir {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return out
}

// Violation is one breach. Value is what the exceptions file limits: a measured size, or how often it happens.
type Violation struct {
	Rule   string
	Key    string // path, or path:function
	Value  int
	Detail string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s: %s", v.Rule, v.Key, v.Detail)
}
