package registries

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func cargoIn(t *testing.T, dir string, cache Cache) string {
	t.Helper()
	list, err := Discover(context.Background(), Host{Environ: []string{"PATH=" + dir + "/bin"}, Home: dir, Root: os.DirFS("/"), Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	return list.of("cargo")
}

// TestCacheFollowsTheProgram: the second run does not read the program, and a changed program is read again.
func TestCacheFollowsTheProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cache := FileCache{filepath.Join(dir, "found.json")}
	program := filepath.Join(dir, "bin/cargo")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(host string, at time.Time) {
		if err := os.WriteFile(program, []byte("sparse+https://index."+host+".example/"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, at, at); err != nil {
			t.Fatal(err)
		}
	}
	first, second := time.Unix(1000, 0), time.Unix(1000, 1)
	write("aaa", first)
	if got := cargoIn(t, dir, cache); got != "index.aaa.example" {
		t.Fatalf("got %q", got)
	}
	write("bbb", first) // same size and time: only a cached answer is "aaa"
	if got := cargoIn(t, dir, cache); got != "index.aaa.example" {
		t.Errorf("the program was read again: %q", got)
	}
	if got := cargoIn(t, dir, nil); got != "index.bbb.example" {
		t.Errorf("without a cache: %q", got)
	}
	write("ccc", second)
	if got := cargoIn(t, dir, cache); got != "index.ccc.example" {
		t.Errorf("a changed program is not noticed: %q", got)
	}
	for _, broken := range []string{"{", "[]", strings.Repeat("x", maxCache+1)} {
		if err := os.WriteFile(cache.Path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := cargoIn(t, dir, cache); got != "index.ccc.example" {
			t.Errorf("with a broken cache: %q", got)
		}
	}
	cache.Path = filepath.Join(dir, "absent/found.json")
	if got := cargoIn(t, dir, cache); got != "index.ccc.example" {
		t.Errorf("without a state folder: %q", got)
	}
}
