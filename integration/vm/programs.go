package vm

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// BusyBox returns a shell and the small commands for the guest, from the
// machine's own static busybox. Commands in except are left out, to make room
// for real ones.
func BusyBox(ctx context.Context, except ...string) ([]File, error) {
	source, err := lookTool("busybox")
	if err != nil {
		return nil, err
	}
	if f, err := elf.Open(source); err != nil {
		return nil, err
	} else if libs, _ := f.ImportedLibraries(); len(libs) > 0 {
		return nil, errors.Join(f.Close(), fmt.Errorf("%w: %s is linked dynamically, install busybox-static", ErrMissingTool, source))
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	list, err := run(ctx, "", source, "--list")
	if err != nil {
		return nil, err
	}
	skip := map[string]bool{"busybox": true, "init": true}
	for _, name := range except {
		skip[name] = true
	}
	files := []File{{Path: "/usr/bin/busybox", Mode: 0o755, Source: source}}
	for _, name := range strings.Fields(string(list)) {
		if !skip[name] {
			files = append(files, File{Path: "/usr/bin/" + name, Link: "busybox"})
		}
	}
	return files, nil
}

// libraryDirs are where Debian's dynamic loader looks without a cache, which the
// guest does not have.
var libraryDirs = []string{
	"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib", "/lib", "/usr/lib64", "/lib64",
}

// HostPrograms returns programs of this machine with the loader and the
// libraries they name. It reads ELF headers and executes nothing: ldd(1) may run
// the program it is asked about.
func HostPrograms(names ...string) ([]File, error) {
	c := closure{seen: map[string]bool{}}
	for _, name := range names {
		source, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMissingTool, err)
		}
		if err := c.add(source, "/usr/bin/"+filepath.Base(name)); err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	return c.files, nil
}

type closure struct {
	files []File
	seen  map[string]bool
}

// add takes source into the guest as target, and then what it needs.
func (c *closure) add(source, target string) error {
	if c.seen[target] {
		return nil
	}
	c.seen[target] = true
	c.files = append(c.files, File{Path: target, Mode: 0o755, Source: source})
	f, err := elf.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.addLoader(f); err != nil {
		return err
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, lib := range libs {
		file, err := findLibrary(lib)
		if err != nil {
			return err
		}
		if err := c.add(file, mergedUsr(file)); err != nil {
			return fmt.Errorf("library %s: %w", lib, err)
		}
	}
	return nil
}

// addLoader adds the program interpreter, whose path the kernel takes as it is.
func (c *closure) addLoader(f *elf.File) error {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(raw, 0); err != nil {
			return fmt.Errorf("program interpreter: %w", err)
		}
		loader := strings.TrimRight(string(raw), "\x00")
		return c.add(loader, mergedUsr(loader))
	}
	return nil
}

func findLibrary(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range libraryDirs {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("library %s is in none of %s", name, strings.Join(libraryDirs, ", "))
}

// mergedUsr maps /lib/x to /usr/lib/x: the guest has links at the old places, as
// Debian does, and an entry cannot lie below a link.
func mergedUsr(file string) string {
	for _, dir := range usrLinks {
		if strings.HasPrefix(file, "/"+dir+"/") {
			return path.Join("/usr", file)
		}
	}
	return path.Clean(file)
}

var usrLinks = []string{"bin", "sbin", "lib", "lib64"}
