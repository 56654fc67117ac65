package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"coworker/enforce"
	"coworker/runtime/session"
)

// report is what --report writes. The keys are part of the contract.
type report struct {
	ExitCode       int                                `json:"exit_code"`
	Level          string                             `json:"level"`
	Walls          map[enforce.Wall]enforce.WallState `json:"walls"`
	Attestation    string                             `json:"attestation"`
	Denials        []session.Denial                   `json:"denials"`
	Watching       []string                           `json:"watching"`
	Egress         []egressReport                     `json:"egress"`
	EgressMore     int                                `json:"egress_more,omitempty"` // connections beyond that list
	DroppedEnv     []string                           `json:"dropped_env"`
	TrackedSecrets []string                           `json:"tracked_secrets"`
	NamedSecrets   int                                `json:"named_secrets"`
	Held           []heldReport                       `json:"held"`
	Staged         *stagedReport                      `json:"staged,omitempty"`  // what a staged session changed
	Learned        string                             `json:"learned,omitempty"` // the file with the proposed profile
	// Started is when the command itself began, null if it never did: it tells 126, 127 and 120 to 125 of the
	// command from those of coworker.
	Started    *time.Time `json:"started"`
	DurationMS int64      `json:"duration_ms"`
}

type heldReport struct {
	ID     string `json:"id"`
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// stagedReport counts what a staged session changed, and what became of it.
type stagedReport struct {
	Session   string `json:"session"` // its name for coworker changes
	Changes   int    `json:"changes"`
	Applied   int    `json:"applied"`
	Held      int    `json:"held"`
	Conflicts int    `json:"conflicts"`
}

func newReport() *report {
	return &report{
		Level: enforce.Direct.String(), Walls: map[enforce.Wall]enforce.WallState{}, Denials: []session.Denial{}, Watching: []string{},
		Egress: []egressReport{}, DroppedEnv: []string{}, TrackedSecrets: []string{}, Held: []heldReport{},
	}
}

// write stores the report.
func (r *report) write(d *destination) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return d.write(append(data, '\n'))
}

// joinReport says that the report is missing. The exit code stays the command's own if it had one to give: the
// work is done, and a script looks at the file anyway.
func joinReport(err, reportErr error) error {
	if reportErr == nil {
		return err
	}
	reportErr = fmt.Errorf("write the report: %w", reportErr)
	if err == nil {
		return reportErr
	}
	return errors.Join(err, reportErr)
}

// note tells the person something on the way.
func (e *environment) note(prefix, text, hint string) {
	fmt.Fprintf(e.err, "%s: %s\n", prefix, indented(text))
	if hint != "" {
		fmt.Fprintf(e.err, "hint: %s\n", indented(hint))
	}
}
