package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/platform/atomicfile"
	"coworker/platform/config"
	"coworker/platform/redact"
	"coworker/runtime/learn"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

// learnedFolder holds proposals, among the state: nothing reads them but people.
const learnedFolder = "learned"

// forLearning fills in what --learn means for the network: where there is somebody to ask, they are asked.
func (e *environment) forLearning(f execFlags) execFlags {
	if !f.learn || f.net == string(enforce.NetNone) {
		return f
	}
	f.net = string(enforce.NetAllowlist)
	if !f.ask && isTerminal(e.err) {
		if tty, err := openTerminal(); err == nil {
			tty.Close()
			f.ask = true
		}
	}
	return f
}

// learned writes down what the session needed, once everything about it is known.
func (x *execution) learned(result session.Result) error {
	if !x.flags.learn || !result.Started {
		return nil
	}
	program := filepath.Base(x.flags.command[0])
	o := learn.Observations{Program: program, Given: x.given(), Blind: x.session.NotWatching()}
	o.Hosts, _ = x.session.Egress()
	o.More = int64(x.report.EgressMore)
	refused, more := x.session.Seen()
	o.More += more
	for _, one := range refused {
		o.Refused = append(o.Refused, learn.Refused{Refusal: one.Refusal, Count: one.Count})
	}
	if x.report.Staged != nil {
		o.Wrote = x.report.Staged.Changes
	}
	p := learn.Propose(o, redact.New(bothCases(x.values)...))
	file, err := x.keepProposal(p.Text)
	if err != nil {
		return fmt.Errorf("write down what was learned: %w", err)
	}
	x.report.Learned = file
	x.tellLearned(program, file, p, o.Wrote > 0)
	a, id := x.session.Attestation()
	return x.record.Record(context.WithoutCancel(x.stop.ctx), id, session.Event{
		Stage: "learn", Status: "proposed", Args: p.Allow, Resource: file, CallID: x.session.ID() + "/1",
		Reason: fmt.Sprintf("%d rules about hosts, %d refused, %d left out", len(p.Allow), p.Refused, p.LeftOut), Level: a.Level, Walls: a.Walls,
	})
}

// keepProposal stores the text under the name of the session, readable by its owner only.
func (x *execution) keepProposal(text []byte) (string, error) {
	dir := filepath.Join(x.host.Dirs.State, learnedFolder)
	if err := makePrivate(dir); err != nil {
		return "", err
	}
	file := filepath.Join(dir, x.session.ID()+".toml")
	return file, atomicfile.Create(file, text)
}

func (x *execution) tellLearned(program, file string, p learn.Proposal, wrote bool) {
	var parts []string
	for _, c := range []struct {
		n    int
		text string
	}{{len(p.Allow), "hosts were let through"}, {p.Refused, "things were refused"}, {p.LeftOut, "are left out as possible secrets"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	text := "a profile with what this command needed is in " + visible(file)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	name, flag := profileName(program), ""
	if wrote {
		flag = "-w "
	}
	x.notify(session.Notice{Text: text, Hint: fmt.Sprintf("read it; to keep it: install -D -m 600 %s %s; then: coworker exec %s--profile %s -- …",
		visible(file), visible(filepath.Join(x.host.Dirs.Config, "profiles", name+".toml")), flag, name)})
}

// profileName makes a name for the proposal that no shipped profile has.
func profileName(program string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	if program == "" || strings.Trim(program, letters) != "" || strings.HasPrefix(program, "-") || len(program) > 32 {
		return "learned"
	}
	return program + "-learned"
}

// given is what the person gave to the session, by flags and by a profile.
func (x *execution) given() wallspec.Profile {
	var p wallspec.Profile
	if x.profile != nil {
		p = *x.profile
	}
	p.Read = slices.Concat(p.Read, x.absolute(x.flags.read))
	p.Write = slices.Concat(p.Write, x.absolute(x.flags.writePaths))
	p.Hide = slices.Concat(p.Hide, x.absolute(x.flags.hide))
	p.Env = slices.Concat(p.Env, x.flags.env)
	p.EnvSecret = slices.Concat(p.EnvSecret, x.flags.envSecret)
	p.Allow = slices.Clone(p.Allow)
	for _, rule := range x.flags.allow {
		p.Allow = append(p.Allow, config.Rule(rule))
	}
	return p
}

func (x *execution) absolute(names []string) []config.Path {
	var out []config.Path
	for _, name := range names {
		if !strings.HasPrefix(name, "~/") {
			if !path.IsAbs(name) {
				name = path.Join(x.host.Cwd, name)
			}
			name = path.Clean(name)
		}
		out = append(out, config.Path(name))
	}
	return out
}

// bothCases adds the values as they would stand in a host name, where letters have one case.
func bothCases(secrets []redact.Secret) []redact.Secret {
	out := slices.Clone(secrets)
	for _, s := range secrets {
		if lower := strings.ToLower(s.Value); lower != s.Value {
			out = append(out, redact.Secret{Name: s.Name, Value: lower})
		}
	}
	return out
}

// makePrivate makes a folder that only its owner may enter.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
