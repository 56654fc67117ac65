package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"coworker/enforce/hide"
	"coworker/enforce/protect"
	"coworker/platform/gitconfig"
	"coworker/platform/workfs"
	"coworker/runtime/held"
)

// judge decides what apply does with a new or changed path, and takes the change in.
func (s *scan) judge(n *node, e entry, c *Change) error {
	if c.Verdict == LeftOut {
		return s.add(n, c)
	}
	if s.t.underMask(e.rel) || s.hostSecret(n, e.name, e.host) {
		return s.hold(n, e, c, "a secret file of the host stands there", "hidden")
	}
	if rule := e.rule; rule != nil || n.rule != nil {
		if n.rule != nil {
			rule = n.rule
		}
		return s.protected(n, e, c, *rule)
	}
	if s.t.kept(e.rel) {
		return s.hold(n, e, c, "the session could not write it", "protected")
	}
	if n.hold != "" && layoutName(e.name) {
		return s.hold(n, e, c, n.hold, "a repository layout")
	}
	if c.Type != workfs.Directory.String() {
		if why := s.newSecret(n, e); why != "" {
			return s.hold(n, e, c, why, "hidden")
		}
	}
	return s.settle(n, e, c)
}

// settle compares the host with the base and takes the change in.
func (s *scan) settle(n *node, e entry, c *Change) error {
	if why := s.edited(e.rel, e.host); why != "" {
		c.Verdict, c.Reason = Conflict, why
	}
	return s.add(n, c)
}

// edited says what the person did to a path since the session began.
func (s *scan) edited(rel string, host *workfs.Info) string {
	base, known := s.t.base[rel]
	switch {
	case host == nil && !known:
	case host == nil:
		return "deleted on the host since"
	case !known:
		return "made on the host since"
	case !base.same(stampOf(*host, s.t.rootDev)):
		return "edited on the host since"
	}
	return ""
}

// layoutName is a name that makes git take a folder for a repository.
func layoutName(name string) bool {
	var with protect.Layout
	with.Add("HEAD")
	with.Add("objects")
	with.Add("refs")
	for _, others := range [][]string{{"objects", "refs"}, {"HEAD", "objects"}, {"HEAD", "refs"}, {"HEAD"}} {
		var l protect.Layout
		for _, o := range others {
			l.Add(o)
		}
		if l.Add(name); l.GitDir() {
			return true
		}
	}
	return false
}

// hold sends a path to the held files. A change of the mode alone leaves nothing to hold.
func (s *scan) hold(n *node, e entry, c *Change, why, rule string) error {
	c.Rule = rule
	if c.Kind == Mode {
		c.Verdict, c.Reason = LeftOut, why
		return s.add(n, c)
	}
	id := identity(e.info)
	if e.info.Kind == workfs.Directory {
		sum, err := s.fingerprint(n, e)
		if err != nil {
			return err
		}
		id, c.plan.whole = sum, true
	}
	if s.t.seen[e.rel] == seenHeld+id {
		return nil
	}
	c.Verdict, c.Reason = Held, why
	c.plan = step{act: note, upper: seenHeld + id, whole: c.plan.whole}
	return s.add(n, c)
}

// fingerprint tells one state of a whole folder of the session from another.
func (s *scan) fingerprint(n *node, e entry) (string, error) {
	count, latest := 0, e.info.Change
	var walk func(d *workfs.Dir, name string, depth int) error
	walk = func(d *workfs.Dir, name string, depth int) error {
		sub, err := d.OpenDirForced(name)
		if err != nil || depth > maxDepth {
			return nil // what cannot be listed is not held either
		}
		defer sub.Close()
		list, err := s.entries(sub)
		if err != nil {
			return err
		}
		for _, one := range list {
			info, err := sub.Lstat(one.Name)
			if err != nil {
				continue
			}
			if count++; info.Change.After(latest) {
				latest = info.Change
			}
			if info.Kind == workfs.Directory {
				if err := walk(sub, one.Name, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := walk(n.up, e.name, n.depth)
	return fmt.Sprintf("folder.%d.%d", count, latest.UnixNano()), err
}

// protected applies the rules for protected names: what the host has stays as it is; what is new is judged by what it says,
// because honest work makes repositories.
func (s *scan) protected(n *node, e entry, c *Change, rule protect.Rule) error {
	rule.Check = checkOf(n, rule)
	switch {
	case rule.Check == protect.HoldConfig && e.info.Kind == workfs.Regular:
		return s.config(n, e, c, rule)
	case e.host != nil && !rule.AtEnd:
		return s.hold(n, e, c, "protected: "+rule.Why, rule.Name)
	case rule.Check == protect.HoldHooks:
		if !s.plainHook(n, e) {
			return s.hold(n, e, c, "a hook that git would run", rule.Name)
		}
		return s.settle(n, e, c)
	case n.rule != nil:
		return s.hold(n, e, c, "protected: "+rule.Why, rule.Name)
	}
	reason, err := held.Reason(view{s.t}, e.rel, rule)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if reason != "" {
		return s.hold(n, e, c, reason, rule.Name)
	}
	return s.settle(n, e, c)
}

// checkOf: below a folder only the hooks rule looks at single names.
func checkOf(n *node, rule protect.Rule) protect.Check {
	if n.rule != nil && rule.Check != protect.HoldHooks {
		return protect.HoldAlways
	}
	return rule.Check
}

// plainHook allows a hooks folder that git init made, and the samples in it.
func (s *scan) plainHook(n *node, e entry) bool {
	if n.rule == nil {
		return e.info.Kind == workfs.Directory
	}
	return n.fresh && e.info.Kind == workfs.Regular && strings.HasSuffix(e.name, ".sample")
}

// config lets the inert keys of a git configuration through and holds the version with keys that execute.
func (s *scan) config(n *node, e entry, c *Change, rule protect.Rule) error {
	if c.Kind == Mode {
		return s.hold(n, e, c, "protected: "+rule.Why, rule.Name)
	}
	data, _, err := s.t.upper.ReadFile(e.rel, gitconfig.MaxBytes)
	if err != nil {
		return s.hold(n, e, c, "not the plain file that git writes there", rule.Name)
	}
	result, reason, err := s.inert(e, data)
	if err != nil {
		return s.hold(n, e, c, err.Error(), rule.Name)
	}
	if result != nil {
		merged := *c
		merged.plan.data, merged.NewSize = result, int64(len(result))
		if reason != "" {
			merged.Note, merged.plan.upper = "only the keys that execute nothing", ""
		}
		if e.host != nil {
			merged.plan.want.Mode = e.host.Mode.Perm()
		}
		if err := s.settle(n, e, &merged); err != nil {
			return err
		}
	}
	if reason == "" {
		return nil
	}
	return s.hold(n, e, c, reason, rule.Name)
}

// inert is what may stand in place of a configuration, nil if that is what stands there, and why the rest is held.
func (s *scan) inert(e entry, data []byte) (result []byte, reason string, err error) {
	if e.host == nil {
		return held.Inert(view{s.t}, e.rel, data)
	}
	have, _, err := s.t.host.ReadFile(e.rel, gitconfig.MaxBytes)
	if err != nil {
		return nil, "", err
	}
	result, keys, err := gitconfig.Merge(have, data)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, k := range keys[:min(len(keys), 8)] {
		if k.Removed {
			names = append(names, k.Name+" (removed)")
			continue
		}
		names = append(names, k.Name)
	}
	if len(names) > 0 {
		reason = "holds keys that execute: " + strings.Join(names, ", ")
	}
	if string(result) == string(have) {
		result = nil
	}
	return result, reason, nil
}

// hostSecret says whether a file of the host is one that sessions do not see.
func (s *scan) hostSecret(n *node, name string, host *workfs.Info) bool {
	if host == nil || host.Kind == workfs.Directory {
		return false
	}
	verdict, _ := hide.Name(path.Base(n.rel), name)
	if n.rel == "." {
		verdict, _ = hide.Name("", name)
	}
	if verdict != hide.NeedsContent || host.Kind != workfs.Regular {
		return verdict == hide.Hidden
	}
	head, _, err := n.host.ReadHead(name, hide.HeadBytes)
	return err != nil || hide.ByContent(name, head)
}

// newSecret says why a new file would be a secret on the host.
func (s *scan) newSecret(n *node, e entry) string {
	parent := path.Base(n.rel)
	if n.rel == "." {
		parent = ""
	}
	verdict, why := hide.Name(parent, e.name)
	if verdict == hide.NeedsContent && e.info.Kind == workfs.Regular {
		f, _, err := n.up.OpenForced(e.name)
		if err != nil {
			return why + "; it could not be read"
		}
		defer f.Close()
		head := make([]byte, hide.HeadBytes)
		got, _ := f.ReadAt(head, 0)
		if !hide.ByContent(e.name, head[:got]) {
			return ""
		}
		return "holds a credential"
	}
	if verdict == hide.Hidden {
		return "a new secret: " + why
	}
	return ""
}

// judgeGone decides about a path that the session deleted.
func (s *scan) judgeGone(n *node, name string, h workfs.Info, c *Change) error {
	rule, _ := n.state.Enter(name, h.Kind == workfs.Directory)
	if n.rule != nil {
		rule = n.rule
	}
	waits := c.plan.waits
	c.plan.waits = false
	switch {
	case s.t.underMask(c.Rel) || s.hostSecret(n, name, &h):
		c.Verdict, c.Reason, c.Rule = LeftOut, "a secret file of the host is not deleted", "hidden"
	case rule != nil && !rule.AtEnd && !s.t.ours[c.Rel]: // what the session itself made may go again
		c.Verdict, c.Reason, c.Rule = LeftOut, "protected: "+rule.Why, rule.Name
	case s.t.kept(c.Rel):
		c.Verdict, c.Reason, c.Rule = LeftOut, "the session could not write it", "protected"
	case c.Verdict == Clean:
		if why := s.edited(c.Rel, &h); why != "" {
			c.Verdict, c.Reason = Conflict, why
		}
	default:
		c.plan.waits = waits && n.block == ""
	}
	return s.add(n, c)
}

// sleeping says what would wake up if git took a folder of the host for a repository: files that an earlier apply, or the
// person, put there as ordinary ones.
func (s *scan) sleeping(n *node, theirs []workfs.Entry) string {
	for _, e := range theirs {
		rule, state := n.state.Enter(e.Name, e.Kind == workfs.Directory)
		rel := workfs.Join(n.rel, e.Name)
		switch {
		case rule == nil && e.Kind == workfs.Directory && state != protect.Tree:
			return fmt.Sprintf("would make a repository of a folder that holds %q", e.Name)
		case rule == nil:
			continue
		case rule.Check == protect.HoldConfig && e.Kind == workfs.Regular:
			data, _, err := s.t.host.ReadFile(rel, gitconfig.MaxBytes)
			if err == nil {
				_, reason, perr := held.Inert(s.t.host, rel, data)
				err = perr
				if err == nil && reason == "" {
					continue
				}
			}
		case rule.Check == protect.HoldHooks && e.Kind == workfs.Directory:
			if list, err := s.t.host.ReadDir(rel, maxScan); err == nil && onlySamples(list) {
				continue
			}
		}
		return fmt.Sprintf("would make a repository of a folder that holds %q, which git would obey", e.Name)
	}
	return ""
}

func onlySamples(list []workfs.Entry) bool {
	for _, e := range list {
		if e.Kind != workfs.Regular || !strings.HasSuffix(e.Name, ".sample") {
			return false
		}
	}
	return true
}
