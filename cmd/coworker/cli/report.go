package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"coworker/enforce"
	"coworker/platform/atomicfile"
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
	Egress         []struct{}                         `json:"egress"` // this build lets nothing out
	DroppedEnv     []string                           `json:"dropped_env"`
	TrackedSecrets []string                           `json:"tracked_secrets"`
	NamedSecrets   int                                `json:"named_secrets"`
	Held           []heldReport                       `json:"held"`
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

func newReport() *report {
	return &report{
		Level: enforce.Direct.String(), Walls: map[enforce.Wall]enforce.WallState{}, Denials: []session.Denial{}, Watching: []string{},
		Egress: []struct{}{}, DroppedEnv: []string{}, TrackedSecrets: []string{}, Held: []heldReport{},
	}
}

// write replaces the file in one step. Devices and pipes (/dev/stdout, a FIFO of a script) cannot be replaced and
// are written to.
func (r *report) write(e *environment, file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	switch file { // opening these anew needs rights on somebody else's pipe or terminal
	case "/dev/stdout":
		_, err := e.out.Write(data)
		return err
	case "/dev/stderr":
		_, err := e.err.Write(data)
		return err
	}
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return appendTo(file, data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(file, data)
}

func appendTo(file string, data []byte) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(data)
	return err
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
