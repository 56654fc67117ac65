package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/house"
)

// runGo runs the real go test on a module made for the case: the shape of its events is what could change.
func runGo(t *testing.T, test string, skips []house.Skip) (output string, g *gate, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module coworker\n\ngo 1.24\n", "x/x.go": "package x\n", "x/x_test.go": test} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	g = &gate{out: &out, skips: skips}
	err = start(t.Context(), []string{"go", "-C", dir, "test", "-json", "./..."}, g)
	return out.String(), g, err
}

func TestGate(t *testing.T) {
	listed := []house.Skip{{Package: "x", Name: "TestA", Reason: "for this test only"}}
	head := "package x\nimport \"testing\"\n"
	tests := []struct {
		name, src string
		skips     []house.Skip
		want      counts
		green     bool
		says      string
	}{
		{"pass", head + "func TestA(t *testing.T) { t.Log(\"quiet\") }", nil, counts{1, 0, 0}, true, "ok  \tcoworker/x"},
		{"fail", head + "func TestA(t *testing.T) { t.Error(\"loud\") }", nil, counts{0, 1, 0}, false, "loud"},
		{"subtest", head + "func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { t.Error(\"loud\") }) }", nil, counts{0, 2, 0}, false, "--- FAIL: TestA/b"},
		{"unlisted skip", head + "func TestA(t *testing.T) { t.Skip(\"lazy\") }", nil, counts{0, 0, 1}, false, "lazy"},
		{"listed skip", head + "func TestA(t *testing.T) { t.Skip(\"known\") }", listed, counts{0, 0, 1}, true, "ok  \tcoworker/x"},
		{"another's skip", head + "func TestB(t *testing.T) { t.Skip(\"lazy\") }", listed, counts{0, 0, 1}, false, "lazy"},
		{"no tests", "package x\n", nil, counts{}, false, "no tests to run"},
		{"does not build", head + "func TestA(t *testing.T) { nonsense() }", nil, counts{0, 1, 0}, false, "undefined: nonsense"},
		{"panic", head + "func TestA(t *testing.T) { go panic(\"boom\"); select {} }", nil, counts{0, 1, 0}, false, "boom"},
		{"early exit", head + "import \"os\"\nfunc TestMain(m *testing.M) { os.Exit(3) }\nfunc TestA(t *testing.T) {}", nil, counts{0, 1, 0}, false, "exit status 3"},
		{"quiet exit", head + "import \"os\"\nfunc TestMain(m *testing.M) { os.Exit(0) }\nfunc TestA(t *testing.T) {}", nil, counts{}, false, "ok  \tcoworker/x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, g, err := runGo(t, tt.src+"\n", tt.skips)
			verdict := errors.Join(append(g.verdict(), err)...)
			if g.counts != tt.want || (verdict == nil) != tt.green {
				t.Errorf("counts %+v verdict %v, want %+v, green %v\n%s", g.counts, verdict, tt.want, tt.green, out)
			}
			if !strings.Contains(out, tt.says) || strings.Contains(out, "quiet") || strings.Contains(out, "=== RUN") {
				t.Errorf("output without %q, or with what go test does not print:\n%s", tt.says, out)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	got, err := split([]string{"--", "go", "test", "-p", "2", "./...", "--", "go", "-C", "x", "test", "."})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"go", "test", "-json", "-p", "2", "./..."}, {"go", "-C", "x", "test", "-json", "."}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("split = %q, want %q", got, want)
	}
	for _, bad := range [][]string{nil, {"go", "test"}, {"--", "go", "vet"}, {"--"}} {
		if _, err := split(bad); err == nil {
			t.Errorf("split(%q) was accepted", bad)
		}
	}
}
