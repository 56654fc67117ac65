package house

import (
	"fmt"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// fake makes a package of one file; the checks must find in it what they find in the tree.
func fake(t *testing.T, name, src string) []*Package {
	t.Helper()
	f, err := Parse(token.NewFileSet(), name, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	byDir := map[string]*Package{}
	add(byDir, f)
	return sorted(byDir)
}

func rules(found []Violation) []string {
	var names []string
	for _, v := range found {
		if !slices.Contains(names, v.Rule) {
			names = append(names, v.Rule)
		}
	}
	slices.Sort(names)
	return names
}

func TestImportRules(t *testing.T) {
	tests := []struct {
		file, imp string
		want      string // rules broken, comma-separated
	}{
		{"policy/engine/a.go", "coworker/policy", ""},
		{"policy/shell/a.go", "mvdan.cc/sh/v3/syntax", ""},
		{"policy/shell/a.go", "mvdan.cc/sh/v3/interp", "D1"},
		{"policy/a.go", "strings", ""},
		{"policy/a.go", "os", "D1"},
		{"policy/a.go", "os/exec", "D1"},
		{"policy/a.go", "path/filepath", "D1"},
		{"policy/a_test.go", "os", ""},
		{"policy/a.go", "golang.org/x/mod/semver", "D1"},
		{"policy/a.go", "golang.org/x/sys/unix", "D1,D5"},
		{"policy/a.go", "coworker/platform/config", "D1,direction"},
		{"policy/a.go", "coworker/enforce", "D1,D2,direction"},
		{"enforce/a.go", "coworker/policy", "D2,direction"},
		{"enforce/a_windows.go", "coworker/policy/rule", "D2,direction"},
		{"enforce/a_test.go", "coworker/policy", "D2,direction"},
		{"netproxy/a.go", "coworker/policy/engine", "D2,direction"},
		{"runtime/wallspec/a.go", "coworker/policy", ""},
		{"runtime/wallspec/a.go", "coworker/enforce", ""},
		{"agent/a.go", "coworker/policy", ""},
		{"agent/a.go", "coworker/policy/engine", "D3"},
		{"agent/provider/openai/a.go", "coworker/enforce/native", "D3,direction"},
		{"agent/a.go", "coworker/platform/secret", "D3"},
		{"agent/a.go", "coworker/platform/secretary", ""},
		{"runtime/cell/a.go", "coworker/runtime/wire", ""},
		{"runtime/cell/files/a.go", "coworker/enforce/probe", ""},
		{"runtime/cell/a.go", "golang.org/x/sys/unix", ""},
		{"runtime/cell/a.go", "github.com/creack/pty", ""},
		{"runtime/cell/a.go", "net", ""},
		{"runtime/cell/a.go", "net/http", "D4"},
		{"runtime/cell/a_darwin.go", "net/http/httptest", "D4"},
		{"runtime/cell/a.go", "coworker/platform/audit", "D4"},
		{"runtime/cell/a.go", "coworker/runtime/session", "D4"},
		{"runtime/cell/a.go", "modernc.org/sqlite", "D4"},
		{"runtime/cellar/a.go", "net/http", ""},
		{"runtime/held/a.go", "golang.org/x/sys/unix", "D5"},
		{"runtime/held/a_test.go", "golang.org/x/sys/unix", "D5"},
		{"cmd/coworker-cell/a.go", "golang.org/x/sys/unix", "D5"},
		{"cmd/coworker-wallsd/a.go", "golang.org/x/sys/unix", ""},
		{"platform/workfs/a.go", "golang.org/x/sys/unix", ""},
		{"netproxy/transparent/a.go", "golang.org/x/sys/unix", ""},
		{"netproxy/dial/a.go", "golang.org/x/sys/unix", "D5"},
		{"cmd/coworker/a.go", "coworker/cmd/coworker/cli", ""},
		{"cmd/coworker/a.go", "coworker/cmd/coworker-cell", "D6"},
		{"integration/walls/a_test.go", "coworker/cmd/coworker/cli", "D6,direction"},
		{"integration/walls/a_test.go", "coworker/integration/house/testuser", ""},
		{"runtime/session/a_test.go", "coworker/integration/fakes", "D6,direction"},
		{"platform/audit/a.go", "coworker/runtime/wire", "direction"},
		{"internal/a.go", "strings", "direction"},
	}
	for _, tt := range tests {
		t.Run(tt.file+" "+tt.imp, func(t *testing.T) {
			found := CheckImports(fake(t, tt.file, fmt.Sprintf("package a\nimport _ %q\n", tt.imp)))
			if got := strings.Join(rules(found), ","); got != tt.want {
				t.Errorf("broken rules %q, want %q: %v", got, tt.want, found)
			}
		})
	}
}

func TestAgentReachesThroughAnother(t *testing.T) {
	pkgs := slices.Concat(
		fake(t, "agent/a.go", "package a\nimport _ \"coworker/policy\"\n"),
		fake(t, "policy/b.go", "package b\nimport _ \"coworker/policy/engine\"\n"))
	if got := rules(CheckImports(pkgs)); !slices.Equal(got, []string{"D3"}) {
		t.Errorf("broken rules %v, want D3 for the way through policy", got)
	}
}

const doc = "// Package a is for tests; anyone may import it.\n"

func TestSourceRules(t *testing.T) {
	deep := "for { for { for { for { for { } } } } }"
	elseIf := "if x > 0 { } else if x > 1 { } else if x > 2 { } else if x > 3 { } else if x > 4 { } else { }"
	tests := []struct {
		name, file, src string
		want            string
	}{
		{"clean", "enforce/a.go", doc + "package a\nfunc f(ctx context.Context, b int) {}", ""},
		{"no doc", "enforce/a.go", "package a", "package-doc"},
		{"doc without importers", "enforce/a.go", "// Package a is for tests.\npackage a", "package-doc"},
		{"doc with a wrong start", "enforce/a.go", "// This may import anything.\npackage a", "package-doc"},
		{"command", "cmd/x/a.go", "// X does a thing.\npackage main", ""},
		{"tests only", "integration/x/a_test.go", "// Package x_test attacks.\npackage x_test", ""},
		{"vague name", "enforce/util/a.go", "// Package util may import.\npackage util", "package-name"},
		{"long file", "enforce/a.go", doc + "package a" + strings.Repeat("\n", 701), "file-lines"},
		{"generated file", "enforce/a.go", "// Code generated by x. DO NOT EDIT.\n\n" + doc + "package a" + strings.Repeat("\n", 701), ""},
		{"long function", "enforce/a.go", doc + "package a\nfunc f() {" + strings.Repeat("\n", 65) + "}", "func-lines"},
		{"long test", "enforce/a_test.go", doc + "package a\nfunc f() {" + strings.Repeat("\n", 65) + "}", ""},
		{"deep", "enforce/a.go", doc + "package a\nfunc f() { " + deep + " }", "nesting"},
		{"not deep enough", "enforce/a.go", doc + "package a\nfunc f() { " + strings.Replace(deep, "for { }", "", 1) + " }", ""},
		{"else if is flat", "enforce/a.go", doc + "package a\nfunc f(x int) { " + elseIf + " }", ""},
		{"literal starts anew", "enforce/a.go", doc + "package a\nfunc f() { for { for { for { go func() { for { for { } } }() } } } }", ""},
		{"six parameters", "enforce/a.go", doc + "package a\nfunc f(a, b, c, d, e, g int) {}", "params"},
		{"late context", "enforce/a.go", doc + "package a\nfunc f(a int, ctx context.Context) {}", "context-first"},
		{"context after t", "enforce/a.go", doc + "package a\nfunc f(t *testing.T, ctx context.Context) {}", ""},
		{"error text", "enforce/a.go", doc + "package a\nvar e = errors.New(\"failed to open\")", "error-text"},
		{"error prefix", "enforce/a.go", doc + "package a\nvar e = fmt.Errorf(\"error opening %s\", x)", "error-text"},
		{"unfinished", "enforce/a.go", doc + "package a\n// TO" + "DO: later", "unfinished"},
		{"unfinished in a string", "enforce/a.go", doc + "package a\nvar s = \"TO" + "DO\"", ""},
		{"goos", "runtime/held/a.go", doc + "package a\nimport \"runtime\"\nvar s = runtime.GOOS", "D5"},
		{"goos renamed", "runtime/held/a.go", doc + "package a\nimport r \"runtime\"\nvar s = r.GOOS", "D5"},
		{"goos allowed", "enforce/x/a.go", doc + "package a\nimport \"runtime\"\nvar s = runtime.GOOS", ""},
		{"goarch", "runtime/held/a.go", doc + "package a\nimport \"runtime\"\nvar s = runtime.GOARCH", ""},
		{"policy clock", "policy/a.go", doc + "package a\nimport \"time\"\nfunc f() { time.Now() }", "D1"},
		{"policy init", "policy/a.go", doc + "package a\nfunc init() {}", "D1"},
		{"policy global", "policy/a.go", doc + "package a\nvar m = map[string]int{}\nfunc f() { m[\"a\"] = 1 }", "D1"},
		{"policy global of another file", "policy/a.go", doc + "package a\nfunc f() { counter++ }", "D1"},
		{"policy local", "policy/a.go", doc + "package a\nfunc f(p *T) { x := 1; x++; p.y = x; _ = x }", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := CheckSource(fake(t, tt.file, tt.src+"\n"))
			if got := strings.Join(rules(found), ","); got != tt.want {
				t.Errorf("broken rules %q, want %q: %v", got, tt.want, found)
			}
		})
	}
}

func TestTwoPackageDocs(t *testing.T) {
	a := fake(t, "enforce/a.go", doc+"package a\n")
	b := fake(t, "enforce/b_windows.go", doc+"package a\n")
	a[0].Files = append(a[0].Files, b[0].Files...)
	if got := rules(CheckSource(a)); !slices.Equal(got, []string{"package-doc"}) {
		t.Errorf("broken rules %v, want package-doc", got)
	}
}

func TestExceptionsAreARatchet(t *testing.T) {
	list, err := ParseExceptions(strings.NewReader("# comment\nfunc-lines a.go:F 70 one table, read top to bottom\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int) []Violation { return []Violation{{"func-lines", "a.go:F", n, "long"}} }
	tests := []struct {
		name  string
		found []Violation
		want  string
	}{
		{"as listed", at(70), ""},
		{"grown", at(71), "allows 70"},
		{"shrunk", at(69), "lower the limit"},
		{"gone", nil, "remove it"},
		{"elsewhere", append(at(70), Violation{"func-lines", "b.go:F", 66, "long"}), "b.go:F"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(Apply(tt.found, list), "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("complaints %q, want one with %q", got, tt.want)
			}
		})
	}
	for _, bad := range []string{"func-lines a.go:F 70", "func-lines a.go many a reason of many words", "D4 runtime/cell/a.go 1 we really need it here", "direction a 1 we really need it here"} {
		if _, err := ParseExceptions(strings.NewReader(bad)); err == nil {
			t.Errorf("exception %q was accepted", bad)
		}
	}
}

func TestSkips(t *testing.T) {
	src := doc + "package a\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip(\"no\") }\n"
	list, err := ParseSkips(strings.NewReader("enforce TestX needs a kernel with it\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := CheckSkips(fake(t, "enforce/a_test.go", src), list); got != nil {
		t.Errorf("listed skip: %v", got)
	}
	if got := CheckSkips(fake(t, "enforce/a_test.go", src), nil); len(got) != 1 {
		t.Errorf("unlisted skip: %v, want one complaint", got)
	}
	short := strings.Replace(src, "t.Skip(\"no\")", "if testing.Short() { return }", 1)
	if got := CheckSkips(fake(t, "enforce/a_test.go", short), nil); len(got) != 1 {
		t.Errorf("testing.Short: %v, want one complaint", got)
	}
	if got := CheckSkips(fake(t, "enforce/a_test.go", doc+"package a\nfunc TestX() {}\n"), list); len(got) != 1 {
		t.Errorf("stale entry: %v, want one complaint", got)
	}
	for test, want := range map[string]bool{"TestX": true, "TestX/sub": true, "TestXY": false, "TestY": false} {
		if got := Allowed(list, "coworker/enforce", test, true); got != want {
			t.Errorf("Allowed(%s) = %v, want %v", test, got, want)
		}
	}
	list, err = ParseSkips(strings.NewReader("enforce TestX without-root: gives files to another user\n"))
	if err != nil || Allowed(list, "coworker/enforce", "TestX", true) || !Allowed(list, "coworker/enforce", "TestX", false) {
		t.Errorf("a without-root skip (%v, %v) must count without root only", list, err)
	}
	if _, err := ParseSkips(strings.NewReader("enforce TestX broken\n")); err == nil {
		t.Error("a skip without a reason was accepted")
	}
}

func TestTextRules(t *testing.T) {
	machine := []string{"/srv/me/tree"}
	tests := []struct{ file, text, want string }{
		{"docs/a.md", "see /srv/me/tree/docs", "machine-path"},
		{"a.go", "package a // /srv/me/tree", "machine-path"},
		{"docs/a.md", "/tmp/srv/me/tree and /srv/me/treehouse", ""},
		{"Makefile", "# FIX" + "ME", "unfinished"},
		{"scripts/a", "mktemp -d x.XXX" + "XXX", ""},
	}
	for _, tt := range tests {
		if got := strings.Join(rules(checkText(tt.file, tt.text, machine)), ","); got != tt.want {
			t.Errorf("%s %q: broken rules %q, want %q", tt.file, tt.text, got, tt.want)
		}
	}
}

func TestTags(t *testing.T) {
	src := "//go:build linux && (soak || !strange)\n\n" + doc + "package a\n"
	got := CheckTags(fake(t, "enforce/a.go", src), []string{"soak"})
	if len(got) != 1 || !strings.Contains(got[0], `"strange"`) {
		t.Errorf("complaints %v, want one about strange", got)
	}
}
