package house

import (
	"bytes"
	"fmt"
	"go/build/constraint"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxTracked keeps build results and downloads out of the history, where they would stay for ever.
const maxTracked = 1 << 20

// Tracked lists the files that are, or on "git add" would be, part of the repository. Without git (a source
// archive) it is every file outside ignored folders.
func Tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "-C", root, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := cmd.Output(); err == nil {
		var names []string
		for name := range strings.SplitSeq(string(out), "\x00") {
			// A file that was deleted but not yet committed is still listed.
			if _, err := os.Lstat(filepath.Join(root, name)); name != "" && err == nil {
				names = append(names, name)
			}
		}
		return names, nil
	}
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && slices.Contains([]string{".git", ".cache", "bin"}, d.Name()) {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

// CheckText looks at files of every kind: size, unfinished work, and paths of the machine the author sits at.
// Go files are read for unfinished work by CheckSource, which knows a comment from a string.
func CheckText(root string, names []string, machine []string) ([]Violation, error) {
	var out []Violation
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if info.Size() > maxTracked {
			out = append(out, Violation{"file-size", name, int(info.Size()), fmt.Sprintf("%d bytes, at most %d", info.Size(), maxTracked)})
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(data, 0) < 0 {
			out = append(out, checkText(name, string(data), machine)...)
		}
	}
	return out, nil
}

func checkText(name, text string, machine []string) []Violation {
	var out []Violation
	// Cases to test against quote what others write.
	data := slices.ContainsFunc(strings.Split(name, "/"), func(dir string) bool { return dir == "testdata" || dir == "corpus" })
	for n, line := range strings.Split(text, "\n") {
		if m := unfinished.FindString(line); m != "" && !data && !strings.HasSuffix(name, ".go") {
			out = append(out, Violation{"unfinished", name, 1, fmt.Sprintf("line %d says %s: finish it or file an issue", n+1, m)})
		}
		for _, dir := range machine {
			if mentions(line, dir) {
				out = append(out, Violation{"machine-path", name, 1, fmt.Sprintf("line %d names %s, which exists on one machine only", n+1, dir)})
			}
		}
	}
	return merge(out)
}

// mentions wants dir as a whole path or as its beginning: "/w/x" is in `cd /w/x/y`, not in "/tmp/w/x" or "/w/xy".
func mentions(line, dir string) bool {
	re := regexp.MustCompile(`(^|[^A-Za-z0-9_.}/*-])` + regexp.QuoteMeta(dir) + `(/|[^A-Za-z0-9_.-]|$)`)
	return re.MatchString(line)
}

// knownTags are build constraints that the go command or a cross-build satisfies by itself.
var knownTags = []string{"linux", "darwin", "windows", "unix", "amd64", "arm64", "386", "cgo", "race", "ignore"}

// CheckTags wants each build tag of our own in the list that lint uses: a file behind an unlisted tag is never
// compiled by any check.
func CheckTags(pkgs []*Package, listed []string) []string {
	var out []string
	used := map[string]bool{}
	for _, p := range pkgs {
		for _, f := range p.Files {
			for _, tag := range tags(f) {
				used[tag] = true
				if !slices.Contains(knownTags, tag) && !slices.Contains(listed, tag) && !strings.HasPrefix(tag, "go1.") {
					out = append(out, fmt.Sprintf("%s: build tag %q is not in TAGS of the Makefile, so no check compiles this file", f.Path, tag))
				}
			}
		}
	}
	return out
}

func tags(f *File) []string {
	var out []string
	for _, group := range f.AST.Comments {
		if group.Pos() > f.AST.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				continue // the go command reports it
			}
			expr.Eval(func(tag string) bool { out = append(out, tag); return false })
		}
	}
	return out
}

// Linked lists the packages in a Linux release build of pkg, split by whether they belong to the standard library.
func Linked(root, pkg string) (std, others []string, err error) {
	cgo, tags := "0", ""
	if pkg == "./cmd/coworker-box" { // as in scripts/build
		cgo, tags = "1", "netgo,osusergo,runc_nocriu"
	}
	cmd := exec.Command("go", "list", "-deps", "-tags", tags, "-f", "{{.Standard}} {{.ImportPath}}", pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED="+cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list -deps %s: %w\n%s", pkg, err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		isStd, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if isStd == "true" {
			std = append(std, name)
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(std)
	slices.Sort(others)
	return std, others, nil
}
