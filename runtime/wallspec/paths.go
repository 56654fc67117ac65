package wallspec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

type kind int

// In the order of precedence, weakest first.
const (
	read kind = iota
	write
	hide
)

// rule is one path that somebody asked for.
type rule struct {
	path   string // canonical
	kind   kind
	flag   bool   // a person named it for this run; else it comes from the settings
	origin string // "--read", "exec.hide", …
	info   Info
	lifts  bool // it names, or lies in, something that is protected by default
}

// systemDirs are visible read-only in every session, whatever is asked for.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// kernelDirs are interfaces to the kernel: a tree there would undo the private ones of the session.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// refusedAsWorkspace, with all that is below, is nobody's project; sharedRoots are, by themselves, folders that
// many projects and users share.
var (
	refusedAsWorkspace = append([]string{"/etc", "/boot", "/run", "/var/run", "/lost+found", "/var/lib", "/var/log", "/efi"}, systemDirs...)
	sharedRoots        = []string{"/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/opt", "/srv", "/mnt", "/media", "/Users"}
)

func inSystem(p string) bool { return inAny(p, systemDirs) }

func inAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return within(p, d) })
}

// resolve makes a given path canonical. The reasons are those of the file system, in words.
func (b *builder) resolve(subject, given string) (string, Info, error) {
	p := given
	switch {
	case given == "":
		return "", Info{}, refuse(subject, "", "the path is empty")
	case strings.ContainsRune(given, 0):
		return "", Info{}, refuse(subject, "", "path %q holds a NUL byte", given)
	case !path.IsAbs(given):
		if !path.IsAbs(b.host.Cwd) {
			return "", Info{}, refuse(subject, "give an absolute path", "%q is relative and the current folder is unknown", given)
		}
		p = b.host.Cwd + "/" + given
	}
	canon, info, err := b.host.Files.canonical(p)
	if err == nil {
		return canon, info, nil
	}
	e := refuse(subject, "", "%q: %v", given, err)
	e.Err = err
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Reason, e.Next = fmt.Sprintf("%q does not exist", given), "make it first, or check the spelling"
	case errors.Is(err, fs.ErrPermission):
		e.Reason = fmt.Sprintf("%q cannot be looked at: permission denied", given)
	case errors.Is(err, errLoop):
		e.Next = "name the real path"
	}
	return "", Info{}, e
}

// workspace finds the folder. Whether it may be one is asked later, when the identity and its home are known.
func (b *builder) workspace() error {
	given := b.req.Workspace
	if given == "" {
		given = b.host.Cwd
	}
	p, info, err := b.resolve("workspace", given)
	if err != nil {
		return err
	}
	if !info.Mode.IsDir() {
		return refuse("workspace", "name the folder that holds it", "%q is not a folder", given)
	}
	b.plan.Spec.Workspace = p
	b.rules = []rule{{path: p, kind: read, flag: true, origin: "workspace", info: info}}
	return nil
}

func (b *builder) checkWorkspace() error {
	p := b.plan.Spec.Workspace
	if inAny(p, kernelDirs) {
		return refuse("workspace", "", "%q is an interface to the kernel", p)
	}
	if b.req.Workspace != "" {
		return nil // named: the person's word. Coworker's own folders stay hidden all the same.
	}
	hint := fmt.Sprintf("go to a project, or name it with --workspace %q", p)
	if inAny(p, refusedAsWorkspace) {
		return refuse("workspace", hint, "%q belongs to the system", p)
	}
	caller, _, err := b.host.Files.canonical(b.callerHome())
	if err != nil {
		caller = path.Clean(b.callerHome())
	}
	for _, home := range []string{caller, b.home} {
		if within(home, p) {
			return refuse("workspace", hint, "%q is the home folder, or holds it, and with it every key and password file", p)
		}
	}
	if slices.Contains(sharedRoots, p) {
		return refuse("workspace", hint, "%q is shared by many programs and users", p)
	}
	return nil
}

// collect resolves every path that was asked for.
func (b *builder) collect() error {
	type source struct {
		origin string
		kind   kind
		flag   bool
		paths  []string
	}
	var sources []source
	c := b.req.Config.Exec
	for _, s := range []struct {
		origin string
		kind   kind
		paths  []string
	}{
		{"exec.read", read, expand(c.Read, b.callerHome())},
		{"exec.hide", hide, expand(c.Hide, b.callerHome())},
		{"scan.exclude", hide, expand(b.req.Config.Scan.Exclude, b.callerHome())},
		{"profile read", read, expand(b.profile.Read, b.home)},
		{"profile write", write, expand(b.profile.Write, b.home)},
		{"profile hide", hide, expand(b.profile.Hide, b.home)},
	} {
		sources = append(sources, source{s.origin, s.kind, false, s.paths})
	}
	sources = append(sources,
		source{"--read", read, true, b.req.ReadPaths},
		source{"--write", write, true, b.req.WritePaths},
		source{"--hide", hide, true, b.req.HidePaths})
	for _, s := range sources {
		for _, p := range s.paths {
			if err := b.ask(s.origin, s.kind, s.flag, p); err != nil {
				return err
			}
		}
	}
	return b.ownFolders()
}

// ask enters one path. A missing one is an error if it was named for this run; the settings and profiles serve
// many machines and folders, so there it is noted and skipped.
func (b *builder) ask(origin string, k kind, flag bool, given string) error {
	p, info, err := b.resolve(origin, given)
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		if !flag {
			b.note(fmt.Sprintf("%s: %q does not exist and is skipped", origin, given))
			return nil
		}
		if k == write && b.liftAbsent(given) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	switch {
	case inAny(p, kernelDirs):
		return refuse(origin, "", "%q is an interface to the kernel; sessions have their own", given)
	case k == hide && inSystem(p):
		return refuse(origin, "", "%q is part of the system that every session sees", given)
	case k != hide && !info.Mode.IsDir() && !info.Mode.IsRegular():
		return refuse(origin, "", "%q is neither a folder nor a regular file; sockets and devices stay outside", given)
	}
	b.rules = append(b.rules, rule{path: p, kind: k, flag: flag, origin: origin, info: info})
	return nil
}

// liftAbsent handles --write for a protected name that does not exist: nothing to show, but it may be made.
func (b *builder) liftAbsent(given string) bool {
	full := given
	if !path.IsAbs(full) {
		full = b.host.Cwd + "/" + full
	}
	parent, info, err := b.host.Files.canonical(path.Dir(path.Clean(full)))
	if err != nil || !info.Mode.IsDir() {
		return false
	}
	p, ws := path.Join(parent, path.Base(full)), b.rules[0]
	if ws.kind != write || !below(p, ws.path) || !b.protected(relative(p, ws.path), Info{Mode: fs.ModeDir}, true) {
		return false
	}
	b.plan.Lifted = append(b.plan.Lifted, p)
	return true
}

// protected asks the table of protected names. Of an absent name it is not known whether it will be a folder.
func (b *builder) protected(rel string, info Info, either bool) bool {
	if b.host.Protected == nil {
		return false
	}
	return b.host.Protected(rel, info.Mode.IsDir()) || either && b.host.Protected(rel, !info.Mode.IsDir())
}

// ownFolders enters coworker's own folders: whoever could change the settings or the record would be free of both.
func (b *builder) ownFolders() error {
	d := b.host.Dirs
	for _, dir := range []string{d.Config, d.State, d.Cache, adminConfig, adminCache, adminStages} {
		if dir == "" {
			continue
		}
		p, _, err := b.host.Files.canonical(dir)
		absent := errors.Is(err, fs.ErrNotExist)
		if err != nil && !absent {
			return refuse("workspace", "", "coworker's own folder %q: %v", dir, err)
		}
		if absent {
			p = dir
		}
		if admin := dir == adminConfig || dir == adminCache || dir == adminStages; admin && absent && b.user.UID != 0 {
			continue // only root can make it, and makes it so that others cannot change it
		}
		for _, r := range b.rules {
			if err := clash(r, p, dir, absent); err != nil {
				return err
			}
		}
		b.own = append(b.own, p)
	}
	return nil
}

const (
	adminConfig = "/etc/coworker"
	adminCache  = "/var/cache/coworker"
)

// clash finds a visible path from which one of coworker's own folders could be reached or replaced. own is its
// canonical path and lexical the one it is opened by.
func clash(r rule, own, lexical string, absent bool) error {
	switch {
	case r.kind == hide:
		return nil
	case within(r.path, own):
		return refuse(r.origin, "", "%q is coworker's own folder, which no session sees", r.path)
	case absent && r.path == "/" && within(own, "/etc"):
		return nil // a tree for the whole root does not replace /etc
	case absent && within(own, r.path):
		return refuse(r.origin, "run coworker sandbox setup, which makes it",
			"coworker's own folder %q in %q does not exist yet, so it cannot be hidden: a session could make it, or see what is made later", own, r.path)
	case r.kind != write:
		return nil
	case own != lexical && within(lexical, r.path):
		return refuse(r.origin, "name a smaller folder",
			"%q is writable and holds a symbolic link on the way to coworker's own folder %q, which a session could replace", r.path, lexical)
	}
	return nil
}
