package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"coworker/runtime/session"
	"coworker/runtime/wallsd"
	"coworker/runtime/wallsd/install"
)

// helperReport says how it stands with coworker-wallsd, in status, setup and remove.
type helperReport struct {
	Answers bool          `json:"answers"`
	Trial   *wallsd.Trial `json:"trial,omitempty"` // what it did for this user just now
	Why     string        `json:"why,omitempty"`   // if it does not answer
	Steps   []string      `json:"steps,omitempty"` // what is to be done, or was
	Done    bool          `json:"done"`            // there is nothing to do, or it was done
	Next    string        `json:"next,omitempty"`  // what to run, as root
}

// tryHelper opens a ward of the helper and removes it.
func tryHelper() *helperReport {
	var random [6]byte
	rand.Read(random[:])
	trial, err := wallsd.Try(wallsd.Socket, "status-"+hex.EncodeToString(random[:]))
	if err != nil {
		return &helperReport{Why: err.Error()}
	}
	return &helperReport{Answers: true, Trial: trial}
}

func (h *helperReport) print(w io.Writer, s style) {
	switch {
	case h.Answers:
		fmt.Fprintf(w, "helper    %s, version %s, holds %s\n", s.good("answers"), visible(h.Trial.Build), h.holds())
	default:
		fmt.Fprintf(w, "helper    %s\n", visible(h.Why))
	}
	if h.Next != "" {
		fmt.Fprintf(w, "          as root: %s\n", visible(h.Next))
	}
}

// holds names what the helper put up for the trial.
func (h *helperReport) holds() string {
	var out []string
	for _, l := range h.Trial.Limits {
		if l.Active {
			out = append(out, l.Name)
		}
	}
	if h.Trial.State.Egress.On() {
		out = append(out, "network (ebpf)")
	}
	if h.Trial.State.Guard.On() {
		out = append(out, "files (bpf-lsm)")
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// setupHelper installs the helper: as root after a question, otherwise it names the command.
func (e *environment) setupHelper(ctx context.Context, f setupFlags) (*helperReport, error) {
	self, err := selfPath()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		h := tryHelper()
		h.Done = h.Answers
		if !h.Answers {
			h.Next = "sudo " + self + " sandbox setup --machine"
		}
		return h, nil
	}
	program, err := readHelper()
	if err != nil && !f.machine && !f.yes {
		return &helperReport{Why: "not installed: " + err.Error()}, nil // the rest of setup does not need it
	}
	if err != nil {
		return nil, &wallsError{err: err, hint: "build all binaries together with make build, and keep coworker-wallsd beside coworker"}
	}
	m := install.Here(self, program)
	steps, err := m.Setup(ctx)
	if err != nil {
		return nil, &usageError{text: err.Error(), hint: "nothing was changed; put that right and run it again"}
	}
	h := &helperReport{Steps: textsOf(steps)}
	if h.Done, err = e.perform(ctx, steps, "install coworker-wallsd, the helper that holds the outer walls of sessions whose users are not root", f); err != nil {
		return nil, err
	}
	if !h.Done {
		h.Next = self + " sandbox setup --machine --yes"
		h.Why = "not installed: nobody agreed"
		return h, nil
	}
	after := tryHelper()
	after.Steps, after.Done = h.Steps, true
	switch {
	case !m.Systemd:
		if !after.Answers {
			after.Next, after.Why = install.Command(), "installed and not running: there is no systemd to start it"
		}
	case !after.Answers:
		return nil, &wallsError{err: fmt.Errorf("coworker-wallsd was installed and does not do its work: %s", after.Why), hint: "journalctl -u coworker-wallsd says why; coworker sandbox remove takes it away"}
	}
	return after, nil
}

// readHelper reads the verified program of the helper.
func readHelper() ([]byte, error) {
	f, err := session.OpenWallsd()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	return data, err
}

func selfPath() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("find this executable: %w", err)
	}
	return self, nil
}

func textsOf(steps []install.Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Text)
	}
	return out
}

// perform says what will happen, asks, and does it. Without a person to ask nothing happens, unless --yes said so before.
func (e *environment) perform(ctx context.Context, steps []install.Step, purpose string, f setupFlags) (done bool, err error) {
	if len(steps) == 0 {
		return true, nil
	}
	ask := !f.yes && !f.json && isTerminal(e.in)
	if !f.yes && !ask {
		return false, nil
	}
	fmt.Fprintf(e.err, "This will %s:\n", purpose)
	for _, s := range steps {
		fmt.Fprintf(e.err, "  - %s\n", visible(s.Text))
	}
	if ask {
		tty, err := openTerminal()
		if err != nil {
			return false, err
		}
		defer tty.Close()
		answer, err := session.AskLine(ctx, tty, "Do it? [y/N] ")
		if err != nil {
			return false, fmt.Errorf("ask whether to go on: %w", err)
		}
		if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
			return false, nil
		}
	}
	return true, install.Do(ctx, steps)
}

// sandboxRemove takes away what setup put onto the machine. What belongs to a person stays.
func sandboxRemove(ctx context.Context, e *environment, f setupFlags) error {
	self, err := selfPath()
	if err != nil {
		return err
	}
	m := install.Here(self, nil)
	steps, err := m.Remove()
	if err != nil {
		return err
	}
	h := &helperReport{Steps: textsOf(steps)}
	switch {
	case len(steps) == 0:
		h.Done = true
	case os.Geteuid() != 0:
		h.Next = "sudo " + self + " sandbox remove"
	case !m.Systemd && tryHelper().Answers:
		return &usageError{text: "coworker-wallsd runs, and nothing here started it: there is no systemd", hint: "end it first, with SIGTERM; sessions that it holds end too"}
	default:
		if h.Done, err = e.perform(ctx, steps, "remove what coworker sandbox setup put onto this machine", f); err != nil {
			return err
		}
		if !h.Done {
			h.Next = self + " sandbox remove --yes"
		}
	}
	if f.json {
		err = e.printJSON(h)
	} else {
		h.printRemoved(e.out)
	}
	if err == nil && !h.Done {
		return &usageError{text: "nothing was removed", hint: "as root: " + h.Next}
	}
	return err
}

func (h *helperReport) printRemoved(w io.Writer) {
	switch {
	case len(h.Steps) == 0:
		fmt.Fprintln(w, "nothing to remove: coworker sandbox setup put nothing onto this machine, or it is gone")
	case h.Done:
		fmt.Fprintln(w, "removed; folders and settings of people are theirs, and stay")
	}
}
