package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"coworker/enforce"
	"coworker/platform/config"
)

var errNoWalls = errors.New("no backend can build walls on this machine")

// setupResult is the answer of setup.
type setupResult struct {
	Folders  []string       `json:"folders"`
	Settings string         `json:"settings"`
	Written  bool           `json:"settings_written"`
	Helper   *helperReport  `json:"helper"`
	Machine  *machineStatus `json:"machine"`
	Proof    *verification  `json:"proof,omitempty"`
	Fix      string         `json:"fix,omitempty"` // the one step that helps
	Ready    bool           `json:"ready"`
}

// sandboxSetup is the first command that a person runs.
func sandboxSetup(ctx context.Context, e *environment, f setupFlags) error {
	helper, err := e.setupHelper(ctx, f)
	if err != nil {
		return err
	}
	if f.machine {
		return e.machineOnly(helper, f)
	}
	host, err := localHost()
	if err != nil {
		return err
	}
	if err := host.Dirs.Make(); err != nil {
		return err
	}
	r := &setupResult{Folders: []string{host.Dirs.Config, host.Dirs.State, host.Dirs.Cache}, Settings: host.ConfigFile, Helper: helper}
	settings, err := config.Load(host.ConfigFile)
	if err != nil {
		return err // a file that cannot be read is the person's; it is not replaced
	}
	switch err := config.Write(host.ConfigFile, settings); {
	case err == nil:
		r.Written = true
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if r.Machine, err = readMachine(ctx); err != nil {
		return err
	}
	wanted := enforce.Enforced
	if settings.Level != "" {
		if wanted, err = enforce.ParseLevel(string(settings.Level)); err != nil {
			return err
		}
	}
	wanted = max(wanted, enforce.Partial)
	done := e.progress("proving the walls")
	r.Proof, err = e.verify(ctx, host, execFlags{level: wanted.String()})
	done()
	r.Ready = err == nil
	if !r.Ready {
		r.Fix = r.fix(err)
	}
	if f.json {
		return errors.Join(err, e.printJSON(r))
	}
	r.print(e.out, styleFor(e.out, e.getenv), wanted)
	if err != nil && r.Fix != "" {
		return &wallsError{err: err, hint: r.Fix}
	}
	return err
}

// machineOnly ends the command after the step that needs root.
func (e *environment) machineOnly(h *helperReport, f setupFlags) error {
	var err error
	if f.json {
		err = e.printJSON(h)
	} else {
		h.printInstalled(e.out, styleFor(e.out, e.getenv))
	}
	if err == nil && !h.Done {
		return &usageError{text: "the helper is not installed", hint: "as root: " + h.Next}
	}
	return err
}

// printInstalled says what came of the step that needs root.
func (h *helperReport) printInstalled(w io.Writer, s style) {
	if h.Done && len(h.Steps) == 0 {
		fmt.Fprintf(w, "machine   %s\n", s.good("unchanged"))
	}
	for _, step := range h.Steps {
		if h.Done {
			fmt.Fprintf(w, "done      %s\n", visible(step))
		} else {
			fmt.Fprintf(w, "to do     %s\n", visible(step))
		}
	}
	h.print(w, s)
}

// fix names one step: the backend's own remedy before anything general.
func (r *setupResult) fix(err error) string {
	for _, b := range r.Machine.Backends {
		if b.Backend == enforce.Native && !b.OK && b.Remedy != "" {
			return b.Remedy
		}
	}
	return hintFor(err)
}

func (r *setupResult) print(w io.Writer, s style, wanted enforce.Level) {
	fmt.Fprintf(w, "folders   %s\n", s.good("ready"))
	for _, dir := range r.Folders {
		fmt.Fprintf(w, "          %s\n", visible(dir))
	}
	r.Helper.printInstalled(w, s)
	state := "kept"
	if r.Written {
		state = "written, every key explained"
	}
	fmt.Fprintf(w, "settings  %s (%s)\n", visible(r.Settings), state)
	for _, b := range r.Machine.Backends {
		if b.OK {
			fmt.Fprintf(w, "walls     %s: %s\n", b.Backend, s.good("available"))
		} else {
			fmt.Fprintf(w, "walls     %s: %s, %s\n", b.Backend, s.bad("not available"), visible(b.Cause))
		}
	}
	if r.Proof != nil {
		fmt.Fprintf(w, "\nproof: %d attacks were made from inside and outside\n\n", len(r.Proof.Probes))
		r.Proof.print(w, s, wanted)
	}
	if r.Ready {
		fmt.Fprintf(w, "\n%s Try:\n  coworker exec -- ls              the folder is read-only\n  coworker exec -w --tty -- bash   a shell that may write it\n  coworker demo                    an attack on these walls\n", s.good("Ready."))
	}
}
