package wallspec

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/platform/config"
)

func expand(list []config.Path, home string) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.Expand(home))
	}
	return out
}

// arrange decides which trees are visible: for every path the longest rule that covers it wins; of equal ones
// --hide beats --write beats --read.
func (b *builder) arrange() error {
	b.rules = strongest(b.rules)
	var visible []rule
	for _, r := range b.rules {
		if r.kind == hide {
			if r.path == b.plan.Spec.Workspace {
				return refuse(r.origin, "", "%q is the workspace: nothing would be left to work in", r.path)
			}
			continue
		}
		if err := b.contradiction(r); err != nil {
			return err
		}
		visible = append(visible, r)
	}
	for i := range visible {
		visible[i].lifts = b.lift(visible[i], visible)
	}
	slices.SortStableFunc(visible, func(x, y rule) int { return cmp.Compare(x.path, y.path) })
	for _, r := range visible {
		outer, nested := innermost(r.path, b.trees)
		if nested && outer.kind == r.kind && !r.lifts && r.path != b.plan.Spec.Workspace {
			continue // already visible in the same way
		}
		b.trees = append(b.trees, r)
	}
	for _, r := range visible {
		b.nameSecret(r)
	}
	b.layTrees()
	return nil
}

// strongest keeps one rule for each path.
func strongest(rules []rule) []rule {
	at := map[string]int{}
	var out []rule
	for _, r := range rules {
		i, seen := at[r.path]
		switch {
		case !seen:
			at[r.path] = len(out)
			out = append(out, r)
		case r.kind > out[i].kind:
			r.flag = r.flag || out[i].flag && r.kind != hide
			out[i] = r
		case r.kind == out[i].kind && r.flag:
			out[i].flag = true
		}
	}
	return out
}

// contradiction refuses what cannot be built: something visible inside something hidden inside something visible.
// The way there would lead through the hidden folder.
func (b *builder) contradiction(r rule) error {
	for _, h := range b.rules {
		if h.kind != hide || !below(r.path, h.path) {
			continue
		}
		around := func(o rule) bool { return o.kind != hide && below(h.path, o.path) }
		if slices.ContainsFunc(b.rules, around) {
			return refuse(r.origin, "leave one of them out", "%q lies in %q, which %s hides", r.path, h.path, h.origin)
		}
	}
	return nil
}

// innermost finds the smallest tree that holds p and is not p.
func innermost(p string, trees []rule) (found rule, ok bool) {
	for _, t := range trees {
		if below(p, t.path) && (!ok || len(t.path) > len(found.path)) {
			found, ok = t, true
		}
	}
	return found, ok
}

// lift reports whether a path named with --write is, or lies in, something protected by default. Only the path
// itself is lifted. Where a folder around it is protected too, its own mount must stay on top of that.
func (b *builder) lift(r rule, visible []rule) (keep bool) {
	if r.kind != write || !r.flag || r.origin != "--write" {
		return false
	}
	outer, ok := innermost(r.path, visible)
	if !ok {
		return false
	}
	rel := relative(r.path, outer.path)
	for _, dir := range ancestors(rel) {
		keep = keep || b.host.Protected != nil && b.host.Protected(dir, true)
	}
	if keep || b.protected(rel, r.info, false) {
		b.plan.Lifted = append(b.plan.Lifted, r.path)
	}
	return keep
}

// nameSecret records files that a person named: they are shown, and counted if their name marks a secret.
func (b *builder) nameSecret(r rule) {
	if !r.flag || !r.info.Mode.IsRegular() {
		return
	}
	b.plan.Shown = append(b.plan.Shown, r.path)
	if b.host.Secret == nil || b.host.Secret(path.Base(r.path)) {
		b.plan.Summary.NamedSecrets = append(b.plan.Summary.NamedSecrets, r.path)
	}
}

// layTrees writes the trees of the Spec, the workspace first, with what is hidden in them and with the folders
// that must not be renamed because something below them is mounted.
func (b *builder) layTrees() {
	isWorkspace := func(r rule) bool { return r.path == b.plan.Spec.Workspace }
	at := slices.IndexFunc(b.trees, isWorkspace)
	b.trees = slices.Concat(b.trees[at:at+1], b.trees[:at], b.trees[at+1:])
	hidden := slices.Clone(b.own)
	for _, r := range b.rules {
		if r.kind == hide {
			hidden = append(hidden, r.path)
		}
	}
	for _, r := range b.trees {
		t := enforce.Tree{Path: r.path, Writable: r.kind == write, Device: r.info.Device, Inode: r.info.Inode, File: !r.info.Mode.IsDir()}
		AddFindings(&t, b.mounts(r, hidden), nil, nil)
		b.plan.Spec.Trees = append(b.plan.Spec.Trees, t)
	}
}

// mounts lists what is mounted below one tree because of what was asked for.
func (b *builder) mounts(tree rule, hidden []string) Findings {
	var f Findings
	for _, h := range hidden {
		if in, ok := innermost(h, b.trees); !ok || in.path != tree.path || underOther(h, hidden, tree.path) {
			continue
		}
		rel := relative(h, tree.path)
		if b.isFile(h) {
			f.Masks = append(f.Masks, rel)
		} else {
			f.MaskDirs = append(f.MaskDirs, rel)
		}
		f.Pins = append(f.Pins, ancestors(rel)...)
	}
	for _, inner := range b.trees {
		if in, ok := innermost(inner.path, b.trees); ok && in.path == tree.path {
			f.Pins = append(f.Pins, ancestors(relative(inner.path, tree.path))...)
		}
	}
	return f
}

func (b *builder) isFile(p string) bool {
	return slices.ContainsFunc(b.rules, func(r rule) bool { return r.path == p && !r.info.Mode.IsDir() })
}

// underOther reports whether h lies in another hidden folder of the same tree: one mask is enough, and a second
// one could not be mounted.
func underOther(h string, hidden []string, tree string) bool {
	return slices.ContainsFunc(hidden, func(o string) bool { return below(h, o) && below(o, tree) })
}

// Findings are what the scan of one tree found, relative to it.
type Findings struct {
	Pins, Protected, Masks, MaskDirs []string
}

// AddFindings merges the result of a scan into a tree. What a person named (Plan.Lifted, Plan.Shown) is left out.
// A pin on a path that is itself mounted is left out too: it cannot be renamed as it is.
func AddFindings(t *enforce.Tree, f Findings, lifted, shown []string) {
	named := func(list []string) func(string) bool {
		return func(rel string) bool { return slices.Contains(list, path.Join(t.Path, rel)) }
	}
	t.Protected = union(t.Protected, f.Protected, named(lifted))
	t.MaskDirs = union(t.MaskDirs, f.MaskDirs, nil)
	masked := func(rel string) bool {
		return named(shown)(rel) || slices.ContainsFunc(t.MaskDirs, func(d string) bool { return within(rel, d) })
	}
	t.Masks = union(t.Masks, f.Masks, masked)
	t.Pins = union(t.Pins, f.Pins, func(rel string) bool {
		return slices.ContainsFunc(t.MaskDirs, func(d string) bool { return within(rel, d) })
	})
}

// union sorts and drops duplicates, and what drop reports.
func union(a, b []string, drop func(string) bool) []string {
	out := slices.Concat(a, b)
	if drop != nil {
		out = slices.DeleteFunc(out, drop)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// concealed reports why a host folder that is visible by default must not be: a rule or one of coworker's own
// folders touches it, or a writable tree does, so that a session could change what later ones execute.
func (b *builder) concealed(dir string) string {
	for _, own := range b.own {
		if within(dir, own) || within(own, dir) {
			return fmt.Sprintf("coworker's own folder %q", own)
		}
	}
	for _, r := range b.rules {
		if r.kind == hide && (within(dir, r.path) || within(r.path, dir)) {
			return fmt.Sprintf("%s %q", r.origin, r.path)
		}
	}
	for _, t := range b.trees {
		if t.path == b.plan.Spec.Workspace || t.kind == write {
			if within(dir, t.path) || within(t.path, dir) {
				return fmt.Sprintf("%s %q", t.origin, t.path)
			}
		}
	}
	if strings.ContainsRune(dir, 0) {
		return "a NUL byte"
	}
	return ""
}
