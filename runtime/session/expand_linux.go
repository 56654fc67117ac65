package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"coworker/enforce"
)

// expand replaces what only this host can fill in: patterns of /etc, and a tree that is the root
// of the file system.
func expand(s *enforce.Spec) error {
	s.EtcAllow = expandEtc(s.EtcAllow)
	for i, t := range s.Trees {
		if t.Path != "/" {
			continue
		}
		parts, err := expandRoot(t)
		if err != nil {
			return err
		}
		s.Trees = slices.Concat(s.Trees[:i], parts, s.Trees[i+1:])
		break
	}
	return nil
}

// expandEtc resolves the patterns of path.Match against the host's /etc.
func expandEtc(allow []string) []string {
	var out []string
	for _, pattern := range allow {
		if !strings.ContainsAny(pattern, `*?[\`) {
			out = append(out, pattern)
			continue
		}
		found, err := filepath.Glob(filepath.Join("/etc", pattern))
		if err != nil {
			continue // the table's patterns are valid; an invalid one matches nothing
		}
		for _, f := range found {
			out = append(out, strings.TrimPrefix(f, "/etc/"))
		}
	}
	return out
}

// ownFolders of a root are made by the cell itself or are the system's; a tree for the root of
// the file system does not replace them.
var ownFolders = []string{
	"proc", "sys", "dev", "run", "etc", "tmp", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix", "gnu", "lost+found",
}

// expandRoot turns a tree "/" into one tree for each folder of the person's in it. What is hidden
// or protected below moves to the folder that holds it.
func expandRoot(root enforce.Tree) ([]enforce.Tree, error) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil, fmt.Errorf("list the root of the file system: %w", err)
	}
	var trees []enforce.Tree
	for _, e := range entries {
		if !e.IsDir() || slices.Contains(ownFolders, e.Name()) || slices.Contains(root.MaskDirs, e.Name()) {
			continue
		}
		var st syscall.Stat_t
		if err := syscall.Lstat("/"+e.Name(), &st); err != nil {
			return nil, fmt.Errorf("look at %q: %w", "/"+e.Name(), err)
		}
		t := enforce.Tree{Path: "/" + e.Name(), Writable: root.Writable, Device: st.Dev, Inode: st.Ino}
		for _, list := range []struct{ from, to *[]string }{
			{&root.Pins, &t.Pins}, {&root.Protected, &t.Protected}, {&root.Masks, &t.Masks}, {&root.MaskDirs, &t.MaskDirs},
		} {
			for _, rel := range *list.from {
				if rest, ok := strings.CutPrefix(rel, e.Name()+"/"); ok {
					*list.to = append(*list.to, rest)
				}
			}
		}
		trees = append(trees, t)
	}
	return trees, nil
}
