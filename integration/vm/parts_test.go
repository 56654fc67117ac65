package vm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDependsOnImage(t *testing.T) {
	for in, want := range map[string]string{
		"Package: x\nDepends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)\n":       "linux-image-6.1.0-50-cloud-amd64",
		"Depends: a, linux-image-6.12.117+deb13-cloud-amd64 (= 6.12.117-1), b\n":      "linux-image-6.12.117+deb13-cloud-amd64",
		"Description: needs\n linux-image-6.1.0-50-cloud-amd64\nDepends: something\n": "",
		"Depends: linux-image-cloud-amd64\n":                                          "",
	} {
		got := ""
		if m := dependsOnImage.FindStringSubmatch(in); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLoadImage(t *testing.T) {
	k := Kernel{Name: "6.1"}
	if _, err := load(k, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty cache: %v", err)
	}
	for name, c := range map[string]struct {
		json string
		make []string
		ok   bool
	}{
		"complete":    {`{"release":"6.1.0-1"}`, []string{"boot/vmlinuz-6.1.0-1", "lib/modules/6.1.0-1/x"}, true},
		"merged usr":  {`{"release":"6.1.0-1"}`, []string{"boot/vmlinuz-6.1.0-1", "usr/lib/modules/6.1.0-1/x"}, true},
		"other line":  {`{"release":"6.12.1"}`, []string{"boot/vmlinuz-6.12.1", "lib/modules/6.12.1/x"}, false},
		"no kernel":   {`{"release":"6.1.0-1"}`, []string{"lib/modules/6.1.0-1/x"}, false},
		"not finshed": {`{"release"`, nil, false},
	} {
		dir := t.TempDir()
		for _, f := range append(c.make, imageFile) {
			path := filepath.Join(dir, f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.json), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := load(k, dir); (err == nil) != c.ok || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoKernel: what cannot be had is an error that names the attempts.
func TestNoKernel(t *testing.T) {
	t.Setenv(CacheVar, t.TempDir())
	for want, k := range map[string]Kernel{
		"no-such-suite": {Name: "1.0", Suites: []string{"no-such-suite"}, Package: cloudImage},
	} {
		_, err := Ensure(t.Context(), k)
		if !errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	left, err := os.ReadDir(os.Getenv(CacheVar))
	if err != nil || len(left) != 0 {
		t.Errorf("a failed download leaves %v, %v", left, err)
	}
}

func TestMissingTool(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Boot(t.Context(), Image{}, Guest{}); !errors.Is(err, ErrMissingTool) || !strings.Contains(err.Error(), "qemu-system-x86") {
		t.Errorf("boot without an emulator: %v", err)
	}
	if _, err := BusyBox(t.Context()); !errors.Is(err, ErrMissingTool) {
		t.Errorf("busybox: %v", err)
	}
}

func TestModuleOrder(t *testing.T) {
	for _, k := range Kernels() {
		image, err := Ensure(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		set, err := readModuleSet(image.modulesDir())
		if err != nil {
			t.Fatal(err)
		}
		// nft_ct needs nf_tables and nf_conntrack; unix is built in on some kernels.
		files, err := set.order(t.Context(), []string{"nft-ct", "overlay", "nf_tables"})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, f := range files {
			at[moduleName(f.Path)] = i + 1
		}
		if at["nft_ct"] == 0 || at["nf_tables"] == 0 || at["nf_tables"] > at["nft_ct"] || at["nf_conntrack"] > at["nft_ct"] || at["overlay"] == 0 {
			t.Errorf("%s: order %v", k.Name, at)
		}
		if len(at) != len(files) {
			t.Errorf("%s: a module is loaded twice: %d files, %v", k.Name, len(files), at)
		}
		loaded, rest, err := modulesOf(t.Context(), image, Guest{Modules: []string{"nf_conntrack"}, Loadable: []string{"nft_ct", "nf_conntrack"}})
		if err != nil || len(loaded) == 0 || moduleName(loaded[len(loaded)-1].Path) != "nf_conntrack" || len(rest) == 0 || moduleName(rest[len(rest)-1].Path) != "nft_ct" {
			t.Errorf("%s: %d modules are loaded and %d lie there, %v", k.Name, len(loaded), len(rest), err)
		}
		if _, err := set.order(t.Context(), []string{"no_such_module"}); err == nil {
			t.Errorf("%s: an unknown module was found", k.Name)
		}
	}
}

func FuzzDependsOf(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	if self, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(self[:4096])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = dependsOf(data) // No panic is the claim.
	})
}

func TestHostPrograms(t *testing.T) {
	files, err := HostPrograms("bash", "git", "bash")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
		if !strings.HasPrefix(f.Path, "/usr/") {
			t.Errorf("%s is outside /usr", f.Path)
		}
	}
	for _, want := range []string{"/usr/bin/bash", "/usr/bin/git", "/usr/lib64/ld-linux-x86-64.so.2"} {
		if !slices.Contains(paths, want) {
			t.Errorf("%q lack %s", paths, want)
		}
	}
	if !slices.ContainsFunc(paths, func(p string) bool { return filepath.Base(p) == "libc.so.6" }) {
		t.Errorf("%q lack the C library", paths)
	}
	if slices.Sort(paths); len(slices.Compact(slices.Clone(paths))) != len(paths) {
		t.Errorf("%q has a file twice", paths)
	}
	if _, err := HostPrograms("no-such-program"); !errors.Is(err, ErrMissingTool) {
		t.Errorf("unknown program: %v", err)
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin", "x"), []byte("x"), 0o700),
		os.Symlink("bin/x", filepath.Join(dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	files, err := Tree(dir, "/coworker")
	if err != nil || len(files) != 3 {
		t.Fatalf("%+v, %v", files, err)
	}
	if files[1].Path != "/coworker/bin/x" || files[1].Mode.Perm() != 0o700 || files[2].Link != "bin/x" {
		t.Errorf("%+v", files)
	}
}

func TestTail(t *testing.T) {
	var c tail
	for range 20 {
		if _, err := c.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = c.Write([]byte("last words"))
	if s := c.String(); len(s) > tailLimit || !strings.HasSuffix(s, "last words") || len(c.data) > 3*tailLimit {
		t.Errorf("kept %d bytes, shows %d", len(c.data), len(s))
	}
}

func TestRunReportsStderr(t *testing.T) {
	_, err := run(context.Background(), "", "sh", "-c", "echo the reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}
