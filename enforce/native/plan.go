package native

import (
	"errors"
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"

	"coworker/enforce"
)

// op is one kind of step that builds the root.
type op int

const (
	opFolder  op = iota // make a folder
	opLink              // make a symbolic link; source is its text
	opFile              // make a file from data
	opBind              // attach a host path
	opPrivate           // attach an empty folder of the session's one private tmpfs
	opDevpts            // attach a fresh devpts instance
	opOverlay           // attach an overlay of source (lower) under upper and work
	opTree              // attach a tree of the Spec, with its pins and masks
)

// step is one action on the new root. Targets are absolute paths inside it.
type step struct {
	op       op
	target   string
	source   string
	data     string
	mode     uint32
	readOnly bool
	device   bool // device nodes on it work (only for binds of single nodes and devpts)
	exec     bool // programs on it can be started
	optional bool // skipped if the source does not exist on this host
	stored   bool // the source is relative to the private home's store, and no link on the way to it counts
	tree     int  // index into Spec.Trees for opTree
}

// Folders of the host's system that are visible read-only. Distributions with a merged /usr have
// symbolic links for most of them, which are made again as links.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu"}

// Files below /sys that programs read to learn about processors and memory (Go, Java, NUMA
// libraries). Nothing else of /sys is visible.
var sysFolders = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"}

var deviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}

// plan lists the steps for a Spec, in the order in which they must run: parents before children,
// private folders before the trees that may lie below them. It is pure.
func plan(s enforce.Spec) []step {
	var steps []step
	steps = append(steps, systemSteps()...)
	steps = append(steps, etcSteps(s)...)
	steps = append(steps, deviceSteps()...)
	steps = append(steps, privateSteps(s)...)
	steps = append(steps, homeSteps(s)...)
	for _, dir := range s.Toolchains {
		steps = append(steps, step{op: opBind, source: dir, target: dir, readOnly: true, exec: true, optional: true})
	}
	return append(steps, treeSteps(s)...)
}

func systemSteps() []step {
	var steps []step
	for _, dir := range systemFolders {
		steps = append(steps, step{op: opBind, source: dir, target: dir, readOnly: true, exec: true, optional: true})
	}
	for _, dir := range sysFolders {
		steps = append(steps, step{op: opBind, source: dir, target: dir, readOnly: true, optional: true})
	}
	return steps
}

func etcSteps(s enforce.Spec) []step {
	steps := []step{{op: opFolder, target: "/etc", mode: 0o755}}
	made := map[string]bool{}
	for _, f := range s.Etc {
		made[f.Path] = true
		steps = append(steps, step{op: opFile, target: "/etc/" + f.Path, data: string(f.Data), mode: f.Mode})
	}
	for _, name := range s.EtcAllow {
		if !made[name] {
			steps = append(steps, step{op: opBind, source: "/etc/" + name, target: "/etc/" + name, readOnly: true, optional: true})
		}
	}
	return append(steps, step{op: opLink, target: "/etc/mtab", source: "/proc/self/mounts"})
}

func deviceSteps() []step {
	steps := []step{{op: opFolder, target: "/dev", mode: 0o755}}
	for _, name := range deviceNodes {
		steps = append(steps, step{op: opBind, source: "/dev/" + name, target: "/dev/" + name, device: true})
	}
	return append(steps,
		step{op: opDevpts, target: "/dev/pts", device: true},
		step{op: opLink, target: "/dev/ptmx", source: "pts/ptmx"},
		step{op: opLink, target: "/dev/fd", source: "/proc/self/fd"},
		step{op: opLink, target: "/dev/stdin", source: "/proc/self/fd/0"},
		step{op: opLink, target: "/dev/stdout", source: "/proc/self/fd/1"},
		step{op: opLink, target: "/dev/stderr", source: "/proc/self/fd/2"},
	)
}

// privateSteps make the folders that start empty and end with the session.
func privateSteps(s enforce.Spec) []step {
	return []step{
		{op: opFolder, target: "/proc", mode: 0o555},
		{op: opFolder, target: "/var", mode: 0o755},
		{op: opPrivate, target: "/tmp", mode: 0o1777, exec: true},
		{op: opPrivate, target: "/var/tmp", mode: 0o1777, exec: true},
		{op: opPrivate, target: "/dev/shm", mode: 0o1777},
		{op: opPrivate, target: "/run", mode: 0o755},
		{op: opLink, target: "/var/run", source: "/run"},
		{op: opFolder, target: "/run/user", mode: 0o755},
		{op: opFolder, target: "/run/user/" + strconv.Itoa(s.Identity.UID), mode: 0o700},
	}
}

// homeSteps make the private home: fresh, so that start-up and credential files never persist,
// with the cache and tool folders of the store attached.
func homeSteps(s enforce.Spec) []step {
	home := s.Identity.Home
	steps := []step{{op: opPrivate, target: home, mode: 0o700, exec: true}}
	for _, dir := range s.HomeDirs {
		steps = append(steps, step{op: opBind, source: path.Join("home", dir), target: path.Join(home, dir), exec: true, stored: true})
	}
	for _, c := range s.Caches {
		steps = append(steps, step{op: opOverlay, source: c.Lower, target: path.Join(home, c.Dir), data: path.Join(s.CacheStore, c.Dir), exec: true, optional: true})
	}
	for _, f := range s.HomeFiles {
		steps = append(steps, step{op: opFile, target: path.Join(home, f.Path), data: string(f.Data), mode: f.Mode})
	}
	return steps
}

// treeSteps attach the trees of the Spec, parents before children, so that the longest path wins.
func treeSteps(s enforce.Spec) []step {
	order := make([]int, len(s.Trees))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool {
		return len(s.Trees[order[a]].Path) < len(s.Trees[order[b]].Path)
	})
	var steps []step
	for _, i := range order {
		t := s.Trees[i]
		steps = append(steps, step{op: opTree, source: t.Path, target: t.Path, readOnly: !t.Writable, exec: true, tree: i})
	}
	return steps
}

// checkSpec refuses a Spec that would build something else than it says. It is the keeper's own
// check: the supervisor made the Spec, and a mistake there must not become a hole here.
func checkSpec(s enforce.Spec) error {
	if s.Net != enforce.NetNone && !s.Net.Egress() {
		return fmt.Errorf("network mode %q: want %s, %s or %s", s.Net, enforce.NetNone, enforce.NetAllowlist, enforce.NetOpen)
	}
	paths := []string{s.Identity.Home, s.HomeStore}
	if len(s.Caches) > 0 {
		paths = append(paths, s.CacheStore)
	}
	paths = append(paths, s.Toolchains...)
	for _, t := range s.Trees {
		paths = append(paths, t.Path)
		if t.Stage != "" {
			paths = append(paths, t.Stage)
		}
	}
	for _, c := range s.Caches {
		paths = append(paths, c.Lower)
	}
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.IndexByte(p, 0) >= 0 {
			return fmt.Errorf("path %q in the spec: want an absolute, clean path below the root", p)
		}
	}
	for _, t := range s.Trees {
		if _, ok := reserved[t.Path]; ok {
			return fmt.Errorf("tree %q would replace a folder that the cell makes itself", t.Path)
		}
		if err := checkStage(t); err != nil {
			return err
		}
	}
	return checkRelative(s)
}

// reserved are folders that the plan makes; a tree may lie below them but not replace them.
var reserved = map[string]struct{}{
	"/proc": {}, "/dev": {}, "/sys": {}, "/etc": {}, "/run": {}, "/dev/pts": {}, "/dev/shm": {},
}

func checkRelative(s enforce.Spec) error {
	relative := append([]string{}, s.HomeDirs...)
	relative = append(relative, s.EtcAllow...)
	for _, f := range append(append([]enforce.File{}, s.Etc...), s.HomeFiles...) {
		relative = append(relative, f.Path)
	}
	for _, c := range s.Caches {
		relative = append(relative, c.Dir)
	}
	for _, t := range s.Trees {
		for _, list := range [][]string{t.Pins, t.Protected, t.Masks, t.MaskDirs} {
			relative = append(relative, list...)
		}
	}
	for _, p := range relative {
		if p == "" || p == "." || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") || strings.IndexByte(p, 0) >= 0 {
			return fmt.Errorf("relative path %q in the spec: want a clean path that stays below its folder", p)
		}
	}
	return nil
}

// checkStage refuses a stage that could not be one.
func checkStage(t enforce.Tree) error {
	switch {
	case t.Stage == "":
		return nil
	case !t.Writable || t.File:
		return fmt.Errorf("tree %q has a stage and is no writable folder", t.Path)
	case under(t.Stage, t.Path) || under(t.Path, t.Stage):
		return fmt.Errorf("tree %q and its stage %q lie in one another", t.Path, t.Stage)
	case len(t.Pins)+len(t.Protected) > 0:
		return errors.New("a staged tree has pins: nothing of the host's is in reach there")
	}
	return nil
}

func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
