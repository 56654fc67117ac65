package enforce

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// WallState is the verified state of one wall.
type WallState struct {
	Verified   bool        `json:"verified"`
	Mechanisms []Mechanism `json:"mechanisms"`
	Detail     string      `json:"detail,omitempty"` // why it is not verified, or how absent names are kept
}

// Evidence is everything an assessment may rest on.
type Evidence struct {
	Probes     []Probe
	Mechanisms map[Wall][]Mechanism
	Limits     []Limit // the limits that are in force or missing
}

// Assessment is the level that the evidence supports, wall by wall.
type Assessment struct {
	Level   Level              `json:"level"`
	Walls   map[Wall]WallState `json:"walls"`
	Missing []string           `json:"missing,omitempty"` // one line for each wall or limit that keeps the level below Enforced
	// Lacking is what keeps it below Hardened, one line each; empty below Enforced.
	Lacking []string `json:"lacking,omitempty"`
}

// Assess computes the level from evidence alone. A wall is verified if it has a mechanism, at
// least one probe that was made, and no probe that went wrong. Hardened needs more: absent
// protected names stopped rather than swept, each critical promise shown with either half of the
// mechanisms off, and the limits.
func Assess(e Evidence) Assessment {
	a := Assessment{Level: Enforced, Walls: map[Wall]WallState{}}
	for _, w := range Walls() {
		st := wallState(w, e)
		a.Walls[w] = st
		if !st.Verified && slices.Contains(Required(), w) {
			a.Level = Partial
			a.Missing = append(a.Missing, fmt.Sprintf("%s: %s", w, st.Detail))
		}
	}
	for _, l := range e.Limits {
		if l.Named && !l.Active {
			a.Level = Partial
			a.Missing = append(a.Missing, fmt.Sprintf("res: limit %s was asked for and is not in force: %s", l.Name, l.Detail))
		}
	}
	if a.Level == Enforced {
		if a.Lacking = lacking(e); len(a.Lacking) == 0 {
			a.Level = Hardened
		}
	}
	return a
}

func wallState(w Wall, e Evidence) WallState {
	st := WallState{Mechanisms: e.Mechanisms[w]}
	if st.Mechanisms == nil {
		st.Mechanisms = []Mechanism{}
	}
	var bad []string
	made, swept := 0, false
	for _, p := range e.Probes {
		if p.Wall != w || p.Alone != "" {
			continue
		}
		made++
		if !p.OK() {
			bad = append(bad, fmt.Sprintf("probe %s wanted %s, got %s (%s)", p.Name, p.Want, p.Got, p.Detail))
		}
		swept = swept || p.Got == Swept
	}
	sort.Strings(bad)
	switch {
	case len(bad) > 0:
		st.Detail = strings.Join(bad, "; ")
	case made == 0:
		st.Detail = "no probe was made"
	case len(st.Mechanisms) == 0:
		st.Detail = "no mechanism keeps it"
	default:
		st.Verified = true
		if swept {
			st.Detail = "present: stopped; absent: swept"
		}
	}
	return st
}
