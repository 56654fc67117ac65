package registries

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Host is everything about the machine and the caller that the answer depends on.
type Host struct {
	Environ []string // NAME=VALUE; the last of one name counts
	Home    string   // absolute home folder of the person
	Root    fs.FS    // the file system from / on, with symbolic links followed (os.DirFS("/"))
	// Workspaces are absolute folders that strangers fill. Nothing in them is read.
	Workspaces []string
	// Cache keeps what was found in large files; nil for none.
	Cache Cache
}

// Entry is one host, with who needs it and who says so.
type Entry struct {
	Manager string // npm, pnpm, yarn, pip, uv, go, cargo, maven or gem
	Scope   string // @scope, or the name of one registry among several; often empty
	Rule    string // HOST or HOST:PORT in the grammar of hostmatch, never raw
	Source  string // the variable or file that says so, with ~ for the home
	// Extra are rules for hosts that the manager needs beside this one by its protocol.
	Extra []string
	// Default says that nothing was configured and the manager's own default counts.
	Default bool
	// Credential says that the URL held user information, which is dropped.
	Credential bool
}

// Note is something that the person should know, free of secrets.
type Note struct {
	Manager string
	Text    string
}

// List is what was found, in a fixed order.
type List struct {
	Entries []Entry
	Notes   []Note
}

// Rules are the allow rules of the whole list, each once, sorted.
func (l List) Rules() []string {
	var out []string
	for _, e := range l.Entries {
		out = append(append(out, e.Rule), e.Extra...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Lines show the list to a person: manager, rules and source in columns, then the notes.
func (l List) Lines() []string {
	rows := make([][3]string, 0, len(l.Entries))
	var width [2]int
	for _, e := range l.Entries {
		source := e.Source
		if e.Default {
			source += ", its default"
		}
		if e.Scope != "" {
			source = e.Scope + ", " + source
		}
		row := [3]string{e.Manager, strings.Join(append([]string{e.Rule}, e.Extra...), " "), source}
		rows = append(rows, row)
		width[0], width[1] = max(width[0], len(row[0])), max(width[1], len(row[1]))
	}
	lines := make([]string, 0, len(rows)+len(l.Notes))
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%-*s  %-*s  (%s)", width[0], r[0], width[1], r[1], r[2]))
	}
	for _, n := range l.Notes {
		lines = append(lines, n.Manager+": "+n.Text)
	}
	return lines
}

// Bounds of what is read. A settings file is written by hand; a real one has a few hundred bytes.
const (
	maxFile    = 1 << 20
	maxEntries = 64 // per manager
	maxNotes   = 16 // per manager
)

var managers = []struct {
	name string
	find func(*finder)
}{
	{"npm", (*finder).npm},
	{"pnpm", (*finder).pnpm},
	{"yarn", (*finder).yarn},
	{"pip", (*finder).pip},
	{"uv", (*finder).uv},
	{"go", (*finder).golang},
	{"cargo", (*finder).cargo},
	{"maven", (*finder).maven},
	{"gem", (*finder).gem},
}

// Discover reads what the managers are configured to use. What cannot be read or understood becomes a note and no rule;
// the only errors are a Host without a home and the end of ctx.
func Discover(ctx context.Context, host Host) (List, error) {
	if !path.IsAbs(host.Home) {
		return List{}, fmt.Errorf("home folder %q is not absolute", host.Home)
	}
	f := &finder{ctx: ctx, host: host, env: environment(host.Environ)}
	for _, w := range host.Workspaces {
		f.workspaces = append(f.workspaces, path.Clean(w))
		if real, err := f.canonical(w); err == nil {
			f.workspaces = append(f.workspaces, real)
		}
	}
	for _, m := range managers {
		if err := ctx.Err(); err != nil {
			return List{}, fmt.Errorf("read the settings of %s: %w", m.name, context.Cause(ctx))
		}
		f.manager = m.name
		m.find(f)
	}
	if err := ctx.Err(); err != nil {
		return List{}, fmt.Errorf("read the settings of package managers: %w", context.Cause(ctx))
	}
	return f.list, nil
}

// finder is one run of Discover. Its context lives no longer than that call.
type finder struct {
	ctx        context.Context
	host       Host
	env        map[string]string
	workspaces []string // as given and as the links lead
	manager    string   // at work now
	list       List
	pypi       *origin // pip's default once looked up; uv shares it
}

func environment(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// origin is a URL with who says it.
type origin struct {
	url    string
	scope  string
	source string
	extra  []string // hosts that go with it
	normal bool     // a built-in default
}

// add turns a URL into an entry, or into a note if no rule can be made of it.
func (f *finder) add(o origin) {
	at, err := locate(o.url)
	if err != nil {
		f.note(fmt.Sprintf("%s: %v", o.source, err))
		return
	}
	if at.rule == "" {
		return
	}
	if at.hint != "" {
		f.note(fmt.Sprintf("%s: %s", o.source, at.hint))
	}
	e := Entry{Manager: f.manager, Scope: o.scope, Rule: at.rule, Source: o.source, Default: o.normal, Credential: at.credential}
	for _, host := range o.extra {
		if extra, err := locate("https://" + host + "/"); err == nil && extra.rule != at.rule && !slices.Contains(e.Extra, extra.rule) {
			e.Extra = append(e.Extra, extra.rule)
		}
	}
	f.append(e)
}

func (f *finder) append(e Entry) {
	count := 0
	for i := range f.list.Entries {
		have := &f.list.Entries[i]
		if have.Manager != e.Manager {
			continue
		}
		if have.Rule == e.Rule && have.Scope == e.Scope && slices.Equal(have.Extra, e.Extra) {
			have.Credential = have.Credential || e.Credential
			return
		}
		count++
	}
	if count >= maxEntries {
		f.note(fmt.Sprintf("more than %d registries; the rest is left out", maxEntries))
		return
	}
	f.list.Entries = append(f.list.Entries, e)
}

func (f *finder) note(text string) {
	count := 0
	n := Note{Manager: f.manager, Text: text}
	for _, have := range f.list.Notes {
		if have == n {
			return
		}
		if have.Manager == n.Manager {
			count++
		}
	}
	if count < maxNotes {
		f.list.Notes = append(f.list.Notes, n)
	}
}

// noDefault says that an installed manager has nothing configured and does not tell its default.
func (f *finder) noDefault(where string) {
	f.note(fmt.Sprintf("nothing is configured and the built-in default could not be read (%s); name the host with --allow HOST", where))
}
