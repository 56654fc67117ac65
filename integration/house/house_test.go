package house

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tree(t *testing.T) (root string, pkgs []*Package) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	if pkgs, err = Load(root); err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 2 {
		t.Fatalf("%d packages found below %s, the walk is broken", len(pkgs), root)
	}
	return root, pkgs
}

func readList[T any](t *testing.T, name string, parse func(r *os.File) ([]T, error)) []T {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := parse(f)
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(name), err)
	}
	return list
}

func TestImports(t *testing.T) {
	_, pkgs := tree(t)
	for _, v := range CheckImports(pkgs) {
		t.Error(v)
	}
}

func TestSourceAndText(t *testing.T) {
	root, pkgs := tree(t)
	names, err := Tracked(root)
	if err != nil {
		t.Fatal(err)
	}
	found, err := CheckText(root, names, authorPaths(t, root))
	if err != nil {
		t.Fatal(err)
	}
	exceptions := readList(t, "exceptions.txt", func(f *os.File) ([]Exception, error) { return ParseExceptions(f) })
	for _, complaint := range Apply(append(CheckSource(pkgs), found...), exceptions) {
		t.Error(complaint)
	}
}

// authorPaths are the folders whose names must not get into the tree: the root and what lies beside it. In CI a
// clone may lie in a folder that the tests name for other reasons ("/workspace"), and the author's machine is not
// there to be found anyway.
func authorPaths(t *testing.T, root string) []string {
	t.Helper()
	up := filepath.Dir(root)
	if os.Getenv("CI") != "" {
		return nil
	}
	if slices.Contains([]string{"/", "/tmp", "/root", "/home", "/src", "/var/tmp"}, up) {
		return []string{root}
	}
	entries, err := os.ReadDir(up)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(up, e.Name()))
	}
	return paths
}

func TestSkipsAreListed(t *testing.T) {
	_, pkgs := tree(t)
	skips := readList(t, "../skips.txt", func(f *os.File) ([]Skip, error) { return ParseSkips(f) })
	for _, complaint := range CheckSkips(pkgs, skips) {
		t.Error(complaint)
	}
}

func TestBuildTagsAreChecked(t *testing.T) {
	root, pkgs := tree(t)
	makefile, err := os.Open(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	defer makefile.Close()
	var listed []string
	for sc := bufio.NewScanner(makefile); sc.Scan(); {
		if value, ok := strings.CutPrefix(sc.Text(), "TAGS :="); ok {
			listed = strings.Split(strings.TrimSpace(value), ",")
		}
	}
	if len(listed) == 0 {
		t.Fatal("the Makefile has no line TAGS := …")
	}
	for _, complaint := range CheckTags(pkgs, listed) {
		t.Error(complaint)
	}
}

// TestLinkedPackages holds the list of what is in each small binary. A new line there is a decision, seen in review.
func TestLinkedPackages(t *testing.T) {
	root, pkgs := tree(t)
	for _, p := range pkgs {
		if !isHelper(p) {
			continue
		}
		_, linked, err := Linked(root, "./"+p.Dir)
		if err != nil {
			t.Error(err)
			continue
		}
		name := p.Dir + "/packages.txt"
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%v; write it with: make linked", err)
			continue
		}
		for _, d := range diff(strings.Fields(string(data)), linked) {
			t.Errorf("%s: %s; if that is wanted: make linked, and say why in the commit", name, d)
		}
	}
}

// TestCellLinksNoClient is D4 seen from the linker: it also catches what comes in through other packages.
func TestCellLinksNoClient(t *testing.T) {
	root, pkgs := tree(t)
	for _, p := range pkgs {
		if p.Dir != "cmd/coworker-cell" && p.Dir != "runtime/cell" {
			continue
		}
		std, others, err := Linked(root, "./"+p.Dir)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range append(std, others...) {
			if within(name, cellNever...) {
				t.Errorf("D4: %s links %s: behind the wall there is no network client, database, policy or agent", p.Dir, name)
			}
		}
	}
}

// isHelper says that the package is a command of ours other than coworker itself.
func isHelper(p *Package) bool {
	return top(p.Dir) == "cmd" && p.Name() == "main" && p.Dir != "cmd/coworker"
}

func diff(want, got []string) []string {
	var out []string
	for _, g := range got {
		if !slices.Contains(want, g) {
			out = append(out, "links "+g+" now")
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			out = append(out, "lists "+w+", which is not linked any more")
		}
	}
	return out
}

// TestReadmeNamesTheTestCommand keeps README, CI and Makefile at one command.
func TestReadmeNamesTheTestCommand(t *testing.T) {
	root, _ := tree(t)
	for _, name := range []string{"README.md", ".ci/run"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(data), "make test") {
			t.Errorf("%s does not name the test command, make test", name)
		}
	}
}
