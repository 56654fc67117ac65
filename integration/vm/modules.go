package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"coworker/integration/vm/guest"
)

// moduleSet finds modules of an image. Packages come without modules.dep, which
// depmod writes at installation, so dependencies are read from the modules.
type moduleSet struct {
	builtin map[string]bool
	paths   map[string]string
}

// moduleName is what the kernel calls the module in this file: no folder, no
// suffix, underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(filepath.ToSlash(file)), ".")
	return strings.ReplaceAll(name, "-", "_")
}

func readModuleSet(dir string) (moduleSet, error) {
	set := moduleSet{builtin: map[string]bool{}, paths: map[string]string{}}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return set, err
	}
	for _, line := range strings.Fields(string(list)) {
		set.builtin[moduleName(line)] = true
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			set.paths[moduleName(file)] = file
		}
		return err
	})
	return set, err
}

// order returns the modules with everything they depend on, in an order in which
// they can be loaded. Those built into the kernel are left out.
func (s moduleSet) order(ctx context.Context, names []string) ([]File, error) {
	var files []File
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		name = moduleName(name)
		if seen[name] || s.builtin[name] {
			return nil
		}
		seen[name] = true
		data, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		deps, err := dependsOf(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, dep := range deps {
			if err := visit(dep); err != nil {
				return fmt.Errorf("%w (needed by %s)", err, name)
			}
		}
		files = append(files, File{Path: path.Join(guest.ModuleDir, name+".ko"), Mode: 0o644, Data: data})
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// read returns an uncompressed module. Kernels below 5.17 cannot unpack one, and
// the dependencies must be read here anyway.
func (s moduleSet) read(ctx context.Context, name string) ([]byte, error) {
	file, ok := s.paths[name]
	if !ok {
		return nil, fmt.Errorf("module %s: neither built in nor in the package", name)
	}
	switch filepath.Ext(file) {
	case ".ko":
		return os.ReadFile(file)
	case ".xz":
		return run(ctx, "", "xz", "--decompress", "--stdout", file)
	}
	return nil, fmt.Errorf("module %s: unknown compression of %s", name, filepath.Base(file))
}

// dependsOf reads the "depends=" entry of .modinfo: NUL-terminated KEY=VALUE
// strings, with a comma between module names.
func dependsOf(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
