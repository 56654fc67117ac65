package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"coworker/enforce"
	"coworker/enforce/container"
	"coworker/enforce/hide"
	"coworker/enforce/protect"
	"coworker/platform/audit"
	"coworker/platform/config"
	"coworker/platform/redact"
	"coworker/platform/workfs"
	"coworker/runtime/session"
	"coworker/runtime/treescan"
	"coworker/runtime/wallspec"
)

// planned is a session that was decided on and not started.
type planned struct {
	host     wallspec.Host
	settings config.Config
	plan     wallspec.Plan
	redactor *redact.Redactor
	once     bool // the session runs one command at most
	binary   *program
	egress   *session.Egress // nil: no network
	proxy    *program
	profile  *wallspec.Profile // of --profile, or nil
	values   []redact.Secret   // what redactor knows
}

func (p *planned) close() {
	p.binary.close()
	if p.proxy != nil {
		p.proxy.close()
	}
}

// localHost gathers the facts about this machine, with the tables of names that wallspec leaves to its caller.
func localHost() (wallspec.Host, error) {
	host, err := wallspec.LocalHost()
	if err != nil {
		return host, err
	}
	host.Protected = func(rel string, dir bool) bool {
		_, ok := protect.Match(rel, dir)
		return ok
	}
	host.Secret = func(rel string) bool { return hide.ByName(rel) != hide.Visible }
	return host, nil
}

// decide settles what a session shows, from flags, settings and the project's file. The caller closes it.
func (e *environment) decide(ctx context.Context, f execFlags, host wallspec.Host) (_ *planned, err error) {
	p := &planned{binary: loadProgram(), host: host}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	settings, err := config.Load(host.ConfigFile)
	if err != nil {
		return nil, err
	}
	if settings, err = tightenByProject(settings, f.workspace, host.Cwd); err != nil {
		return nil, err
	}
	req := wallspec.Request{
		Config: settings, Workspace: f.workspace, Write: f.write, ReadOnly: f.readOnly, Staged: f.staged,
		ReadPaths: f.read, WritePaths: f.writePaths, HidePaths: f.hide, Env: f.env, EnvSecret: f.envSecret,
		User: f.user, Level: f.level, Debug: f.debug, Memory: f.memory, Pids: f.pids, CPU: f.cpu, Timeout: f.timeout,
	}
	if f.profile != "" {
		if req.Profile, err = wallspec.FindProfile(f.profile, host.Dirs.Config, config.Read); err != nil {
			return nil, err
		}
		if f.net != string(enforce.NetNone) {
			f.allow = slices.Concat(f.allow, ruleTexts(req.Profile.Allow))
		}
	}
	p.settings = settings
	secrets := secretsOf(append(slices.Clone(host.Environ), f.env...), f.envSecret)
	net, err := e.decideNet(ctx, f, p, &req)
	if err != nil {
		return nil, err
	}
	p.profile, p.values = req.Profile, append(secrets, net...)
	p.redactor = redact.New(p.values...)
	if p.plan, err = wallspec.Build(req, host); err != nil {
		return nil, err
	}
	return p, nil
}

// tightenByProject applies .coworker/config.toml of the workspace. The folder is a stranger's, so no link in it is
// followed; a file that cannot be read is refused rather than taken for absent.
func tightenByProject(settings config.Config, workspace, cwd string) (config.Config, error) {
	if workspace == "" {
		workspace = cwd
	} else if !filepath.IsAbs(workspace) {
		workspace = filepath.Join(cwd, workspace)
	}
	root, err := workfs.OpenRoot(workspace)
	if err != nil {
		return settings, nil // wallspec says what is wrong with the workspace
	}
	defer root.Close()
	const rel = ".coworker/config.toml"
	data, _, err := root.ReadFile(rel, config.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return settings, nil
	}
	file := filepath.Join(workspace, rel)
	if errors.Is(err, syscall.ENOSYS) {
		return settings, &wallsError{err: fmt.Errorf("openat2 is missing: %w", err), hint: "coworker needs Linux 5.6, and does not run inside another sandbox, its own included"}
	}
	if err != nil {
		return settings, &usageError{text: fmt.Sprintf("project settings %q: %v", file, err), hint: "it must be a regular file of at most 64 KiB, and no symbolic link on the way"}
	}
	project, err := config.ParseProject(file, data)
	if err != nil {
		return settings, err
	}
	return config.Tighten(settings, project, workspace)
}

// backend picks who builds the walls. Only the person's word for a weaker level makes it the weaker builder.
func (p *planned) backend(ctx context.Context) (enforce.Backend, error) {
	all := session.Backends()
	want := string(p.settings.Backend)
	if want == "" || want == "auto" {
		first := all[0]
		if p.plan.Level >= enforce.Enforced || first.Available(ctx).OK {
			return first, nil // if it cannot, the refusal names cause and remedy
		}
		return all[len(all)-1], nil
	}
	i := slices.IndexFunc(all, func(b enforce.Backend) bool { return string(b.Name()) == want })
	if i < 0 {
		return nil, &wallsError{err: fmt.Errorf("backend %q is not part of this build", want), hint: "remove the key backend from " + p.host.ConfigFile}
	}
	return all[i], nil
}

// open starts the session.
func (e *environment) open(ctx context.Context, p *planned, rec session.Recorder, notify func(session.Notice)) (*session.Session, error) {
	backend, err := p.backend(ctx)
	if err == nil {
		backend, err = session.WithLabels(backend, container.Labels{AppArmor: string(p.settings.Container.AppArmor), SELinux: string(p.settings.Container.SELinux)})
	}
	if err != nil {
		return nil, err
	}
	file, err := p.binary.open()
	if err != nil {
		return nil, err
	}
	if p.egress != nil {
		if p.egress.Program, err = p.proxy.open(); err != nil {
			return nil, err
		}
		if !backend.Name().Namespaces() {
			return nil, &wallsError{err: fmt.Errorf("the backend %s has no way to give a session a network", backend.Name()), hint: "leave --allow, --net and --ask out, or use the backend native: coworker sandbox status"}
		}
	}
	if err := p.host.Dirs.Make(); err != nil {
		return nil, err
	}
	var exclude []string
	for _, x := range p.settings.Scan.Exclude {
		exclude = append(exclude, x.Expand(e.getenv("HOME")))
	}
	s, err := session.Open(ctx, session.Options{
		Spec: p.plan.Spec, Backend: backend, Program: file, StateDir: p.host.Dirs.State, MinLevel: p.plan.Level,
		Egress: p.egress, Recorder: rec, Notify: notify, Now: e.now, Lifted: p.plan.Lifted, Shown: p.plan.Shown, Exclude: exclude, OneCommand: p.once,
		Scan:   treescan.Config{MaxEntries: int(p.settings.Scan.Entries), MaxDepth: int(p.settings.Scan.Depth)},
		Staged: p.plan.StageStore != "", StageStore: p.plan.StageStore,
	})
	var limit *session.LimitError
	if errors.As(err, &limit) && ExitCode(err) == exitInternal {
		return nil, &wallsError{err: err, hint: limit.Hint()}
	}
	return s, err
}

// recorder begins to open the record for a session.
func (e *environment) recorder(ctx context.Context, p *planned, tool string) *recorder {
	actor := fmt.Sprintf("uid %d", p.host.UID)
	if u, ok := p.host.LookupUID(p.host.UID); ok && u.Name != "" {
		actor = u.Name
	}
	return newRecorder(ctx, p.host.Dirs, p.redactor, e.now, audit.Row{
		Actor: actor, Workspace: p.plan.Spec.Workspace, Tool: tool, VerdictSource: "person",
	})
}
