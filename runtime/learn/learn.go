package learn

import (
	"slices"

	"coworker/enforce"
	"coworker/netproxy/flow"
	"coworker/platform/redact"
	"coworker/runtime/wallspec"
)

// Refused is something that the kernel refused, and how often.
type Refused struct {
	enforce.Refusal
	Count int64
}

// Observations are what is known about a session that has ended.
type Observations struct {
	Program string        // what was run, without its arguments
	Hosts   []flow.Record // what the proxy saw
	Refused []Refused     // what sources in the kernel told
	Wrote   int           // changes that the session made to what is staged
	More    int64         // observations that there was no room for
	Blind   []string      // sources of refused paths that were not live, as "source: why"
	// Given is what the person gave to the session, by a profile and by flags. Of its rules about hosts only those stay that
	// were used.
	Given wallspec.Profile
}

// Proposal is a profile to read.
type Proposal struct {
	Text    []byte   // a file that wallspec.ParseProfile reads
	Allow   []string // the rules in it, sorted
	Refused int      // entries that stand there as comments
	LeftOut int      // what is not in it because it may hold a secret, or cannot be written down
}

// maxBytes bounds what observations add to a proposal: a profile has 64 KiB at most, and a file that nobody can read helps
// nobody. perEntry is what stands around an entry.
const (
	maxBytes = 48 << 10
	perEntry = 160
)

// list is one key of the profile.
type list struct {
	active  map[string]*seen
	refused map[string]*seen
}

// seen sums observations of one thing.
type seen struct {
	times   int64
	given   bool
	by      []string // names of programs
	sources []string
}

func newList() *list { return &list{active: map[string]*seen{}, refused: map[string]*seen{}} }

// draft is a proposal that is being made.
type draft struct {
	redactor           *redact.Redactor
	allow, read, write *list
	settings           map[string]*seen // what a setting would allow, and no profile
	nothing            map[string]*seen // what nothing would allow
	needsWrite         int64            // refusals that -w would lift
	leftOut            int
	more               int64
	bytes              int // of what was noted
}

// Propose makes the profile. The redactor knows the session's secrets.
func Propose(o Observations, r *redact.Redactor) Proposal {
	d := &draft{
		redactor: r, allow: newList(), read: newList(), write: newList(),
		settings: map[string]*seen{}, nothing: map[string]*seen{}, more: o.More,
	}
	for _, rec := range o.Hosts {
		d.host(rec)
	}
	d.dropNames()
	for _, one := range o.Refused {
		d.refusal(one)
	}
	d.given(o.Given)
	for _, l := range []*list{d.allow, d.read, d.write} {
		for text := range l.active {
			delete(l.refused, text) // it was let through later
		}
	}
	text := d.text(o)
	return Proposal{
		Text: text, Allow: sorted(d.allow.active), LeftOut: d.leftOut,
		Refused: len(d.allow.refused) + len(d.read.refused) + len(d.write.refused),
	}
}

// given takes over what the person named, as far as it may be written down.
func (d *draft) given(p wallspec.Profile) {
	for _, x := range p.Read {
		d.named(d.read, string(x))
	}
	for _, x := range p.Write {
		d.named(d.write, string(x))
	}
}

func (d *draft) named(l *list, name string) {
	if !d.mayShow(name) || secretFile(name) {
		d.leftOut++
		return
	}
	if l.active[name] == nil {
		l.active[name] = &seen{given: true}
	}
}

// note adds an observation to a table, which stays bounded.
func (d *draft) note(table map[string]*seen, text string, times int64, by, source string) {
	s := table[text]
	if s == nil {
		size := len(quote(text)) + perEntry
		if d.bytes+size > maxBytes {
			d.more += times
			return
		}
		d.bytes += size
		s = &seen{}
		table[text] = s
	}
	s.times += times
	s.by = with(s.by, by)
	s.sources = with(s.sources, source)
}

// with adds a text to a small sorted set.
func with(set []string, text string) []string {
	const most = 4
	at, found := slices.BinarySearch(set, text)
	if text == "" || found || len(set) >= most {
		return set
	}
	return slices.Insert(set, at, text)
}

func sorted(table map[string]*seen) []string {
	out := make([]string, 0, len(table))
	for text := range table {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// mayShow says whether a text can stand in the file: it holds no secret that the redactor knows.
func (d *draft) mayShow(text string) bool {
	return text != "" && writable(text) && d.redactor.String(text) == text
}
