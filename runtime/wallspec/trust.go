package wallspec

import (
	"fmt"
	"strings"
)

// trust decides whether the workspace is writable: -w and --ro are the word of the person for this run, a folder
// in exec.write is their word for good. Nothing in the folder itself counts.
func (b *builder) trust() error {
	ws, s := &b.rules[0], &b.plan.Summary
	s.Hint = fmt.Sprintf("the workspace is read-only: add -w for this run, or its folder to [exec] write in %s", b.host.ConfigFile)
	switch {
	case b.req.Write && b.req.ReadOnly:
		return refuse("-w", "give one of them", "-w and --ro contradict each other")
	case b.req.Staged && b.req.ReadOnly:
		return refuse("--staged", "leave --ro out: the real folder stays as it is until you apply", "--staged and --ro contradict each other")
	case b.req.ReadOnly:
		s.Reason, s.Hint = "--ro", "the workspace is read-only because of --ro: leave it out"
		return nil
	case b.req.Write:
		s.Reason = "-w"
	case b.req.Staged: // nobody need have trusted the folder: nothing in it changes
		s.Reason = "--staged"
	default:
		folder, ok := b.trusted(ws.path)
		if !ok {
			s.Reason = "nobody trusted this folder"
			return nil
		}
		s.Reason = fmt.Sprintf("%q is trusted in %s", folder, b.req.Config.Source)
	}
	ws.kind, s.Writable, s.Hint = write, true, ""
	return nil
}

// trusted compares canonical paths, so that a symbolic link below a trusted folder does not carry the trust
// elsewhere. A trusted folder that is itself a link counts: the person wrote it.
func (b *builder) trusted(ws string) (string, bool) {
	for _, p := range b.req.Config.Exec.Write {
		folder, _, err := b.host.Files.canonical(p.Expand(b.callerHome()))
		if err == nil && folder != "/" && within(ws, folder) {
			return string(p), true
		}
	}
	return "", false
}

// callerHome is what "~" means in the settings: they belong to the caller, not to whom the session runs as.
func (b *builder) callerHome() string {
	for _, e := range b.host.Environ {
		if v, ok := strings.CutPrefix(e, "HOME="); ok && strings.HasPrefix(v, "/") {
			return v
		}
	}
	if u, ok := b.host.LookupUID(b.host.UID); ok && strings.HasPrefix(u.Home, "/") {
		return u.Home
	}
	return b.home
}
