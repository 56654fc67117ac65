package walls

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed conformance.txt
var conformance string

// line is one attempt of the list.
type line struct {
	id, title string
	cases     []string
	later     string // why it cannot be tested yet
	declined  string // why coworker does not offer what is tested
}

// span is a range of ids that must all be in the list.
type span struct{ first, last int }

// required are the groups on writes, reads, links, missing paths, processes, Unix sockets and raw network; on names and
// addresses at the proxy, DNS, HTTP, TLS and credentials; on the environment and on life and resources; and the part of
// the last group that concerns Linux.
var required = []span{{1, 272}, {297, 320}}

// parse reads the list. Every id stands once, in order, with at least one case or a reason.
func parse(text string) ([]line, error) {
	var all []line
	for n, row := range strings.Split(text, "\n") {
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		cells := strings.SplitN(row, " | ", 3)
		if len(cells) != 3 || len(cells[0]) != 3 || cells[1] == "" {
			return nil, fmt.Errorf("line %d: want ID | attempt | where, got %q", n+1, row)
		}
		l := line{id: cells[0], title: cells[1]}
		for _, part := range strings.Split(cells[2], "; ") {
			if err := l.add(part); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		if len(all) > 0 && all[len(all)-1].id >= l.id {
			return nil, fmt.Errorf("line %d: %s stands after %s", n+1, l.id, all[len(all)-1].id)
		}
		all = append(all, l)
	}
	return all, nil
}

func (l *line) add(part string) error {
	if reason, ok := strings.CutPrefix(part, "later: "); ok {
		l.later = reason
		return wantReason(reason)
	}
	if reason, ok := strings.CutPrefix(part, "not offered: "); ok {
		l.declined = reason
		return wantReason(reason)
	}
	for _, name := range strings.Split(part, ", ") {
		if name == "" || strings.ContainsAny(name, " ;|") {
			return fmt.Errorf("%q is no name of a case", name)
		}
		l.cases = append(l.cases, name)
	}
	return nil
}

func wantReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("a reason is missing")
	}
	return nil
}

// missing lists required ids that are not in the list, and ids that nobody asked for.
func missing(all []line) []string {
	var out []string
	var want []string
	for _, s := range required {
		for id := s.first; id <= s.last; id++ {
			want = append(want, fmt.Sprintf("%03d", id))
		}
	}
	for _, id := range want {
		if !slices.ContainsFunc(all, func(l line) bool { return l.id == id }) {
			out = append(out, id+" is missing")
		}
	}
	for _, l := range all {
		if !slices.Contains(want, l.id) {
			out = append(out, l.id+" is not in a required group")
		}
	}
	return out
}
