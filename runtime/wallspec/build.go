package wallspec

import (
	"fmt"
	"slices"
	"time"

	"coworker/enforce"
	"coworker/platform/config"
)

// Request is what a person asked for: the flags of exec, and the settings (tightened by the project's file).
type Request struct {
	Config config.Config

	Workspace string // --workspace; "" is the current folder
	Write     bool   // -w
	ReadOnly  bool   // --ro
	Staged    bool   // --staged: writable inside, and nothing reaches the real folders until it is applied

	ReadPaths  []string // --read
	WritePaths []string // --write
	HidePaths  []string // --hide

	Env       []string // --env NAME or NAME=VALUE
	EnvSecret []string // --env-secret NAME

	Profile *Profile // --profile, found with FindProfile
	User    string   // --user
	Level   string   // --level
	Debug   bool

	Memory, Pids, CPU, Timeout string // "" is not given

	Net    Net
	Egress *Egress // from ParseNet; nil is a session without a network
}

// Plan is the answer.
type Plan struct {
	Spec    enforce.Spec
	Level   enforce.Level // the weakest level at which the session may start
	Timeout time.Duration // zero: none

	// StageStore is where a staged session keeps what is not applied yet; empty for a live one.
	StageStore string

	// Lifted are protected paths that were named with --write: absolute, whether they exist or not.
	Lifted []string
	// Shown are files that were named, and are therefore not hidden although their name marks a secret.
	Shown []string

	Summary Summary
}

// Summary tells the person what was decided. All lists are sorted.
type Summary struct {
	Writable bool   `json:"writable"`
	Reason   string `json:"reason"`         // why the workspace is writable or not
	Hint     string `json:"hint,omitempty"` // what to do when a write is refused

	DroppedEnv   []string `json:"dropped_env"`   // names of variables that were not passed
	NamedSecrets []string `json:"named_secrets"` // variables and files that a person named
	Notes        []string `json:"notes,omitempty"`
}

type builder struct {
	req     Request
	host    Host
	profile Profile
	user    User
	home    string // canonical path of the user's real home, or as the user database has it
	inside  string // where the private home is, inside
	rules   []rule // what was asked for, path by path
	trees   []rule // what is visible
	own     []string
	path    []string // directories of PATH inside
	plan    Plan
}

// Build makes the Spec. The same request and host give the same plan. Every error is an *Error.
func Build(req Request, host Host) (Plan, error) {
	b := &builder{req: req, host: host}
	if req.Profile != nil {
		b.profile = *req.Profile
	}
	for _, step := range []func() error{
		b.level, b.workspace, b.identity, b.checkWorkspace, b.trust, b.collect, b.arrange,
		b.chooseHome, b.toolchains, b.caches, b.environment, b.homeFiles, b.etc, b.net, b.limits,
	} {
		if err := step(); err != nil {
			return Plan{}, err
		}
	}
	b.plan.Spec.Debug = req.Debug
	if req.Staged {
		b.plan.StageStore = StageStore(host, b.user.UID)
	}
	// Reports list these even where there are none.
	b.plan.Summary.DroppedEnv = append([]string{}, b.plan.Summary.DroppedEnv...)
	b.plan.Summary.NamedSecrets = append([]string{}, b.plan.Summary.NamedSecrets...)
	for _, list := range []*[]string{
		&b.plan.Lifted, &b.plan.Shown, &b.plan.Summary.DroppedEnv, &b.plan.Summary.NamedSecrets, &b.plan.Summary.Notes,
	} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return b.plan, nil
}

func (b *builder) note(text string) { b.plan.Summary.Notes = append(b.plan.Summary.Notes, text) }

// level takes the flag, else the settings, else the default minimum.
func (b *builder) level() error {
	name, subject := b.req.Level, "--level"
	if name == "" {
		name, subject = string(b.req.Config.Level), "level in "+b.req.Config.Source
	}
	if name == "" {
		b.plan.Level = enforce.Enforced
		return nil
	}
	l, err := enforce.ParseLevel(name)
	if err != nil {
		return refuse(subject, "", "%v", err)
	}
	b.plan.Level = l
	if asked, err := enforce.ParseLevel(string(b.req.Config.Level)); err == nil && l < asked {
		b.note(fmt.Sprintf("--level %s is below %s, which the settings ask for", l, asked))
	}
	return nil
}
