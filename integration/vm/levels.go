package vm

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/enforce/redirect"
)

// An Expectation is what the product must reach on a kernel, for a user, with a
// backend and in a network mode. A row of levels.json lists the network modes
// that it holds for.
type Expectation struct {
	Kernel  string              `json:"kernel"`
	User    string              `json:"user"`
	Backend enforce.BackendName `json:"backend"`
	Net     enforce.NetMode     `json:"-"`
	// Redirect is how connections of programs that know of no proxy get to it;
	// empty without a network.
	Redirect redirect.Mode `json:"redirect,omitempty"`
	// Level is the name of the level reached, or Refused.
	Level string `json:"level"`
	// Mechanisms are those of every verified wall, in any order. A wall that is
	// not listed must not be verified: a new mechanism is worth a look at the
	// table as much as a lost one.
	Mechanisms map[enforce.Wall][]enforce.Mechanism `json:"mechanisms"`
	// Why explains a row that a reader would not expect.
	Why string `json:"why,omitempty"`
}

// Refused is the level of a row where no session may start.
const Refused = "refused"

// exitRefused is the product's exit status for walls that are not proved.
const exitRefused = 120

// A Report is the part of `coworker sandbox verify --json` that the table is
// about.
type Report struct {
	Level  enforce.Level                      `json:"level"`
	Walls  map[enforce.Wall]enforce.WallState `json:"walls"`
	Probes []enforce.Probe                    `json:"probes"`
	Notes  []string                           `json:"notes"`
}

// outcome of a probe; empty when it was not made.
func (r Report) outcome(name string) enforce.Outcome {
	for _, p := range r.Probes {
		if p.Name == name {
			return p.Got
		}
	}
	return ""
}

// redirect is what the battery found about the way to the proxy.
func (r Report) redirect() redirect.Mode {
	switch {
	case r.outcome("net.egress/proxy-connect") != enforce.Works:
		return ""
	case r.outcome("net.egress/redirect") != enforce.Works:
		return redirect.ModeNone
	}
	return redirect.ModeNAT
}

//go:embed levels.json
var levelsFile []byte

// Levels returns the checked-in table.
func Levels() ([]Expectation, error) { return parseLevels(levelsFile) }

// Expected returns the row for one combination; a missing row is an error, so
// that a kernel added to the matrix needs a decision.
func Expected(kernel, user string, backend enforce.BackendName, net enforce.NetMode) (Expectation, error) {
	rows, err := Levels()
	if err != nil {
		return Expectation{}, err
	}
	for _, r := range rows {
		if r.Kernel == kernel && r.User == user && r.Backend == backend && r.Net == net {
			return r, nil
		}
	}
	return Expectation{}, fmt.Errorf("levels.json has no row for kernel %s, user %s, backend %s, network %s", kernel, user, backend, net)
}

func parseLevels(data []byte) ([]Expectation, error) {
	var rows []struct {
		Expectation
		Modes []enforce.NetMode `json:"net"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rows); err != nil {
		return nil, fmt.Errorf("levels.json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("levels.json: more than one value")
	}
	seen := map[string]bool{}
	var all []Expectation
	for _, r := range rows {
		for _, mode := range r.Modes {
			e := r.Expectation
			if e.Net = mode; !mode.Egress() {
				e.Redirect = ""
			}
			key := strings.Join([]string{e.Kernel, e.User, string(e.Backend), string(e.Net)}, "/")
			if seen[key] {
				return nil, fmt.Errorf("levels.json: %s has two rows", key)
			}
			seen[key] = true
			if err := e.valid(); err != nil {
				return nil, fmt.Errorf("levels.json: %s: %w", key, err)
			}
			all = append(all, e)
		}
		if len(r.Modes) == 0 {
			return nil, fmt.Errorf("levels.json: a row of kernel %s has no network mode", r.Kernel)
		}
	}
	return all, nil
}

func (e Expectation) valid() error {
	if !slices.Contains([]enforce.NetMode{enforce.NetNone, enforce.NetAllowlist, enforce.NetOpen}, e.Net) {
		return fmt.Errorf("unknown network mode %q", e.Net)
	}
	known := e.Redirect == redirect.ModeNAT || e.Redirect == redirect.ModeNone
	if network := e.Net.Egress() && e.Level != Refused; known != network || !known && e.Redirect != "" {
		return fmt.Errorf("redirect %q in the network mode %s", e.Redirect, e.Net)
	}
	if e.Level == Refused {
		if len(e.Mechanisms) > 0 {
			return errors.New("refused, and yet with mechanisms")
		}
		return nil
	}
	for wall, mechanisms := range e.Mechanisms {
		if !slices.Contains(enforce.Walls(), wall) {
			return fmt.Errorf("unknown wall %q", wall)
		}
		if len(mechanisms) == 0 {
			return fmt.Errorf("wall %s has no mechanism", wall)
		}
	}
	_, err := enforce.ParseLevel(e.Level)
	return err
}

// ParseReport reads the output of `coworker sandbox verify --json`.
func ParseReport(data []byte) (Report, error) {
	var r struct {
		Level  *enforce.Level `json:"level"` // a missing one must not read as "direct"
		Walls  map[enforce.Wall]enforce.WallState
		Probes []enforce.Probe
		Notes  []string
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("sandbox report %.200q: %w", data, err)
	}
	if r.Level == nil || len(r.Walls) == 0 {
		return Report{}, fmt.Errorf("sandbox report %.200q: no level or no walls", data)
	}
	return Report{*r.Level, r.Walls, r.Probes, r.Notes}, nil
}

// Check holds the result of `coworker sandbox verify --json` against a row. Each
// difference is a sentence; none means that they agree. The exit status counts
// for refusals only: it also says whether the level is the wanted one.
func Check(want Expectation, got Result) []string {
	if want.Level == Refused {
		if got.Exit != exitRefused || len(got.Stderr) == 0 {
			return []string{"not refused with a cause: " + got.String()}
		}
		return nil
	}
	report, err := ParseReport(got.Stdout)
	if err != nil {
		return []string{err.Error(), got.String()}
	}
	return Compare(want, report)
}

// Compare returns the differences between a row that is not Refused and a report.
func Compare(want Expectation, got Report) []string {
	var diffs []string
	if got.Level.String() != want.Level {
		diffs = append(diffs, fmt.Sprintf("level %s, want %s", got.Level, want.Level))
	}
	if mode := got.redirect(); mode != want.Redirect {
		diffs = append(diffs, fmt.Sprintf("redirect %q, want %q", mode, want.Redirect))
	}
	for name := range got.Walls {
		if !slices.Contains(enforce.Walls(), name) {
			diffs = append(diffs, fmt.Sprintf("wall %s is not in the vocabulary", name))
		}
	}
	for _, name := range enforce.Walls() {
		wanted, listed := want.Mechanisms[name]
		wall := got.Walls[name]
		if wall.Verified != listed {
			diffs = append(diffs, fmt.Sprintf("wall %s: verified=%t, want %t: %s", name, wall.Verified, listed, wall.Detail))
			continue
		}
		if have := sorted(wall.Mechanisms); listed && !slices.Equal(have, sorted(wanted)) {
			diffs = append(diffs, fmt.Sprintf("wall %s: mechanisms %q, want %q", name, have, sorted(wanted)))
		}
	}
	return diffs
}

func sorted(s []enforce.Mechanism) []enforce.Mechanism { return slices.Sorted(slices.Values(s)) }
