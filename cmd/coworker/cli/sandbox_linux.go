package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"coworker/enforce"
)

// verification is the answer of verify; its keys are part of the contract.
type verification struct {
	Level    enforce.Level                      `json:"level"`
	Walls    map[enforce.Wall]enforce.WallState `json:"walls"`
	Probes   []probeResult                      `json:"probes"`
	Kernel   string                             `json:"kernel"`
	Versions map[string]string                  `json:"versions"`
	Notes    []string                           `json:"notes,omitempty"` // what this kernel cannot do, no wall being in question
	Error    string                             `json:"error,omitempty"` // why there was nothing to verify

	limits  []enforce.Limit
	missing []string
	Lacking []string `json:"lacking,omitempty"` // what keeps the level below hardened
}

type probeResult struct {
	Name   string          `json:"name"`
	Wall   enforce.Wall    `json:"wall"`
	Want   enforce.Outcome `json:"want"`
	Got    enforce.Outcome `json:"got"`
	Detail string          `json:"detail"`
	Alone  enforce.Half    `json:"alone,omitempty"` // the half of the mechanisms that was on

	ok bool
}

// print writes the table: one wall a line, then what went wrong.
func (v *verification) print(w io.Writer, s style, wanted enforce.Level) {
	t := table{paint: func(row, column int, cell string) string {
		switch {
		case row == 0:
			return s.faint(cell)
		case column == 3 && strings.HasPrefix(cell, "holds"):
			return s.good(cell)
		case column == 3:
			return s.bad(cell)
		}
		return cell
	}}
	t.add("WALL", "KEPT BY", "ATTACKS", "RESULT", "PROMISE")
	for _, wall := range enforce.Walls() {
		state := v.Walls[wall]
		var by []string
		for _, m := range state.Mechanisms {
			by = append(by, string(m))
		}
		if len(by) == 0 {
			by = []string{"nothing"}
		}
		t.add(string(wall), strings.Join(by, ", "), strconv.Itoa(v.count(wall)), wallResult(state), wall.Promise())
	}
	t.write(w)
	for _, p := range v.Probes {
		if !p.ok && (p.Alone == "" || wanted == enforce.Hardened) {
			fmt.Fprintf(w, "\n%s: wanted %s, got %s\n  %s\n", visible(p.Name), p.Want, s.bad(string(p.Got)), indented(p.Detail))
		}
	}
	for _, l := range v.limits {
		if !l.Active {
			fmt.Fprintf(w, "\nlimit %s is not in force: %s\n", visible(l.Name), visible(l.Detail))
		}
	}
	for _, text := range v.Notes {
		fmt.Fprintf(w, "\nnote: %s\n", indented(text))
	}
	if wanted == enforce.Hardened || len(v.Lacking) == 0 {
		for _, text := range v.Lacking {
			fmt.Fprintf(w, "\nnot hardened: %s\n", indented(text))
		}
	} else {
		fmt.Fprintf(w, "\nnot hardened: %d reasons; coworker sandbox verify --level hardened names them\n", len(v.Lacking))
	}
	verdict := s.good("reached")
	if v.Level < wanted {
		verdict = s.bad("not reached")
	}
	fmt.Fprintf(w, "\nlevel: %s (%s wanted: %s), kernel %s\n", v.Level, wanted, verdict, visible(v.Kernel))
}

func wallResult(state enforce.WallState) string {
	switch {
	case state.Verified && strings.Contains(state.Detail, "swept"):
		return "holds (new names are undone)"
	case state.Verified:
		return "holds"
	}
	return "not proved"
}

func (v *verification) count(w enforce.Wall) int {
	n := 0
	for _, p := range v.Probes {
		if p.Wall == w {
			n++
		}
	}
	return n
}

// machineStatus is the answer of status.
type machineStatus struct {
	Kernel         string                 `json:"kernel"`
	Privileged     bool                   `json:"privileged"`
	LandlockABI    int                    `json:"landlock_abi"`
	LandlockCause  string                 `json:"landlock_cause,omitempty"`
	UserNamespaces bool                   `json:"user_namespaces"`
	Cgroup         string                 `json:"cgroup"` // v2, hybrid, v1 or none
	Limits         []enforce.Limit        `json:"limits"`
	Helper         *helperReport          `json:"helper"`
	Backends       []enforce.Availability `json:"backends"`
	Walls          []wallOffer            `json:"walls"`
	Level          enforce.Level          `json:"level"` // what to expect; verify proves it
}

// wallOffer says what would keep a wall with the best backend of this machine.
type wallOffer struct {
	Wall       enforce.Wall        `json:"wall"`
	Mechanisms []enforce.Mechanism `json:"mechanisms"`
	Missing    string              `json:"missing,omitempty"`
}

func (m *machineStatus) print(w io.Writer, s style) {
	user := "unprivileged"
	if m.Privileged {
		user = "root"
	}
	landlock := fmt.Sprintf("ABI %d", m.LandlockABI)
	if m.LandlockABI == 0 {
		landlock = "none: " + m.LandlockCause
	}
	fmt.Fprintf(w, "kernel    %s, as %s\nlandlock  %s\ncgroups   %s\n", visible(m.Kernel), user, visible(landlock), m.Cgroup)
	for _, b := range m.Backends {
		if b.OK {
			fmt.Fprintf(w, "%-9s %s\n", b.Backend, s.good("available"))
			continue
		}
		fmt.Fprintf(w, "%-9s %s: %s\n", b.Backend, s.bad("not available"), visible(b.Cause))
	}
	m.Helper.print(w, s)
	for _, l := range m.Limits {
		if !l.Active {
			fmt.Fprintf(w, "limit     %s cannot be bounded as a whole: %s\n", visible(l.Name), visible(l.Detail))
		}
	}
	fmt.Fprintln(w)
	t := table{}
	t.add("WALL", "CAN BE KEPT BY")
	for _, offer := range m.Walls {
		var by []string
		for _, mech := range offer.Mechanisms {
			by = append(by, string(mech))
		}
		text := strings.Join(by, ", ")
		if text == "" {
			text = "nothing: " + offer.Missing
		}
		t.add(string(offer.Wall), text)
	}
	t.write(w)
	fmt.Fprintf(w, "\nexpected level: %s; coworker sandbox verify proves it\n", m.Level)
	for _, b := range m.Backends {
		if !b.OK && b.Remedy != "" && b.Backend == enforce.Native {
			fmt.Fprintf(w, "\nfix: %s\n", indented(b.Remedy))
		}
	}
}

// offers lists what keeps each wall with a backend on a kernel with this Landlock ABI. It speaks of expectation:
// the proof of each session is what counts.
func offers(backend enforce.BackendName, abi int, cgroup bool) []wallOffer {
	mechanisms := map[enforce.Wall][]enforce.Mechanism{
		enforce.Kernel: {enforce.Seccomp}, enforce.Priv: {enforce.NoNewPrivs, enforce.Seccomp}, enforce.Env: {enforce.Supervisor},
		enforce.Res: {enforce.Rlimit}, enforce.Proc: {enforce.Seccomp}, enforce.NetLocal: {enforce.Seccomp}, enforce.Life: {enforce.Pdeathsig},
	}
	add := func(w enforce.Wall, list ...enforce.Mechanism) { mechanisms[w] = append(list, mechanisms[w]...) }
	missing := map[enforce.Wall]string{}
	if backend.Namespaces() {
		add(enforce.FSRead, enforce.MountNS)
		add(enforce.FSWrite, enforce.MountNS)
		add(enforce.FSProtect, enforce.Pins, enforce.Watch)
		add(enforce.FSHide, enforce.Masks)
		add(enforce.NetEgress, enforce.NetNS)
		add(enforce.NetLocal, enforce.NetNS, enforce.MountNS)
		add(enforce.Proc, enforce.PidNS)
		add(enforce.Priv, enforce.UserNS)
		add(enforce.Res, enforce.TmpfsSize)
		add(enforce.Life, enforce.PidNS)
	} else {
		const needsNative = "needs the backend native"
		missing[enforce.FSProtect], missing[enforce.FSHide] = needsNative, needsNative
		// A child that left its parents outlives a bare cell: the death signal alone does not keep life.
		missing[enforce.Life] = needsNative
		delete(mechanisms, enforce.Life)
		if abi >= 4 {
			add(enforce.NetEgress, enforce.LandlockTCP, enforce.Seccomp)
		} else {
			missing[enforce.NetEgress] = "needs the backend native, or Landlock ABI 4 (Linux 6.7)"
		}
	}
	if abi > 0 {
		mechanisms[enforce.FSRead] = append(mechanisms[enforce.FSRead], enforce.Landlock)
		mechanisms[enforce.FSWrite] = append(mechanisms[enforce.FSWrite], enforce.Landlock)
	}
	if abi >= 6 {
		mechanisms[enforce.Proc] = append(mechanisms[enforce.Proc], enforce.LandlockScope)
		mechanisms[enforce.NetLocal] = append(mechanisms[enforce.NetLocal], enforce.LandlockScope)
	}
	if cgroup {
		add(enforce.Res, enforce.Cgroup)
	}
	var out []wallOffer
	for _, w := range enforce.Walls() {
		offer := wallOffer{Wall: w, Mechanisms: slices.Clone(mechanisms[w]), Missing: missing[w]}
		if offer.Mechanisms == nil {
			offer.Mechanisms = []enforce.Mechanism{}
		}
		out = append(out, offer)
	}
	return out
}

func (s style) good(text string) string { return s.paint("32", text) }
