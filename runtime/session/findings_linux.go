package session

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/netproxy/flow"
	"coworker/platform/gitobject"
	"coworker/runtime/treescan"
)

// maxTracked bounds the files that are compared with a repository's history.
const maxTracked = 1 << 20

// visible decides whether a secret name stays readable inside: if a person named it, or if the
// repository around it holds the same bytes already, so that hiding the file would hide nothing.
func (g *guardedTree) visible(ctx context.Context, s treescan.Secret, shown []string) (bool, error) {
	abs := path.Join(g.tree.Path, s.Rel)
	if slices.Contains(shown, abs) {
		return true, nil
	}
	gitDir, ok := g.repositoryOf(s.Rel)
	if !ok {
		return false, nil
	}
	data, _, err := g.root.ReadFile(s.Rel, maxTracked)
	if err != nil {
		return false, nil // unreadable or too long to compare: it stays hidden
	}
	held, err := gitobject.Holds(ctx, g.root, gitDir, data)
	if err != nil || !held {
		return false, nil // a store that cannot be read proves nothing: it stays hidden
	}
	g.tracked = append(g.tracked, abs)
	return true, nil
}

// repositoryOf finds the innermost repository folder around a path, below the tree.
func (g *guardedTree) repositoryOf(rel string) (string, bool) {
	best, found := "", false
	for _, r := range g.scan.Repositories {
		if r.Bare || r.Gitdir != "" || path.Base(r.Rel) != ".git" {
			continue
		}
		work := path.Dir(r.Rel)
		inside := work == "." || strings.HasPrefix(rel, work+"/")
		if inside && (!found || len(r.Rel) > len(best)) {
			best, found = r.Rel, true
		}
	}
	return best, found
}

// gitIgnore makes an exclude file that names the masked files, so that `git add -A` passes over
// what it cannot read instead of failing on it. Patterns are relative to each repository.
func gitIgnore(trees []*guardedTree) []byte {
	var out strings.Builder
	for _, t := range trees {
		if t.scan == nil {
			continue
		}
		for _, rel := range append(slices.Clone(t.tree.Masks), t.tree.MaskDirs...) {
			base := ""
			if gitDir, ok := t.repositoryOf(rel); ok && path.Dir(gitDir) != "." {
				base = path.Dir(gitDir) + "/"
			}
			if strings.ContainsAny(rel, "\n\r\x00") {
				continue // no pattern can name it
			}
			fmt.Fprintf(&out, "/%s\n", escapeIgnore(strings.TrimPrefix(rel, base)))
		}
	}
	return []byte(out.String())
}

// escapeIgnore quotes what gitignore(5) treats as a pattern.
func escapeIgnore(name string) string {
	r := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "#", `\#`, "!", `\!`)
	name = r.Replace(name)
	if strings.HasSuffix(name, " ") {
		name = strings.TrimSuffix(name, " ") + `\ `
	}
	return name
}

// addGitIgnore puts the names of masked files into the private home's git ignore file.
func (s *Session) addGitIgnore() {
	const file = ".config/git/ignore"
	hidden := gitIgnore(s.guard.trees)
	if len(hidden) == 0 {
		return
	}
	files := slices.Clone(s.options.Spec.HomeFiles)
	for i := range files {
		if files[i].Path == file {
			files[i].Data = slices.Concat(files[i].Data, []byte("\n"), hidden)
			s.options.Spec.HomeFiles = files
			return
		}
	}
	s.options.Spec.HomeFiles = append(files, enforce.File{Path: file, Data: hidden, Mode: 0o644})
}

// TrackedSecrets lists files with a secret name that are visible because the repository holds the
// same bytes.
func (s *Session) TrackedSecrets() []string {
	var out []string
	for _, t := range s.guard.trees {
		out = append(out, t.tracked...)
	}
	slices.Sort(out)
	return out
}

// Watching names the live sources of refusals in this session.
func (s *Session) Watching() []string {
	w := []string{"sweep", "limit"}
	if s.cell.MountInfo != nil {
		w = append(w, "mounts")
	}
	if s.egress != nil {
		w = append(w, string(flow.Proxy), string(flow.DNS))
		if s.cell.Egress.Transparent {
			w = append(w, string(flow.Transparent))
		}
	}
	if s.ward.State().Guard.On() {
		w = append(w, string(enforce.SourceBPFLSM))
	}
	if s.ward.State().Egress.On() {
		w = append(w, string(enforce.SourceEBPF))
	}
	if s.log.source != nil && s.attestation.Landlock > 0 {
		w = append(w, string(enforce.SourceLandlock))
	}
	return w
}

// Denials lists the limits that the session ran into so far.
func (s *Session) Denials() []Denial {
	e := s.ward.Counts()
	var out []Denial
	if e.OOMKills > 0 {
		out = append(out, Denial{Wall: enforce.Res, What: fmt.Sprintf("memory limit of %d bytes: %d processes killed", s.options.Spec.Limits.Memory, e.OOMKills), Needed: "--memory", Source: "limit"})
	}
	if e.PidsMax > 0 {
		out = append(out, Denial{Wall: enforce.Res, What: fmt.Sprintf("process limit of %d: %d forks refused", s.options.Spec.Limits.Processes, e.PidsMax), Needed: "--pids", Source: "limit"})
	}
	if hit := s.disk.limitHit(); hit != nil {
		out = append(out, Denial{Wall: enforce.Res, What: hit.Error(), Needed: hit.Needed, Source: "limit"})
	}
	return out
}

// Refusals lists what the proxy and the kernel's programs refused so far, each once.
func (s *Session) Refusals() []Denial {
	var out []Denial
	if s.egress != nil {
		out = s.egress.ledger.denials()
	}
	return append(out, s.refused.denials()...)
}

// Shared tells about files of package stores that are hard-linked into the trees.
func (s *Session) Shared() (folders, files int) {
	for _, t := range s.guard.trees {
		if t.scan != nil {
			folders += t.scan.SharedFolders
			files += t.scan.SharedFiles
		}
	}
	return folders, files
}

// tellWorktree says what git needs in a workspace whose repository lies elsewhere.
func (s *Session) tellWorktree() {
	for _, t := range s.guard.trees {
		if t.scan == nil || t.tree.Path != s.options.Spec.Workspace {
			continue
		}
		for _, r := range t.scan.Repositories {
			if r.Rel == ".git" && r.Outside && !s.shows(r.Gitdir) {
				s.options.Notify(Notice{
					Text: fmt.Sprintf("git does not work in %q: its repository is %q, which is not visible", t.tree.Path, r.Gitdir),
					Hint: fmt.Sprintf("--write %q shows the repository, with its hooks and configuration protected", path.Dir(path.Dir(r.Gitdir))),
				})
			}
		}
	}
}

func (s *Session) shows(p string) bool {
	return slices.ContainsFunc(s.options.Spec.Trees, func(t enforce.Tree) bool {
		return p == t.Path || strings.HasPrefix(p, t.Path+"/")
	})
}
