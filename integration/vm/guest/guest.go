// Package guest is the protocol between the kernel matrix on the host and the
// init process inside the virtual machine: the plan that the host packs into
// the initramfs, and the messages that init writes back over a serial port.
//
// Only integration/vm and integration/vm/guestinit import it. It holds plain
// values and their encoding; nothing that touches an operating system belongs
// here, because both sides must agree on it on any machine.
package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Paths inside the guest that both sides name.
const (
	Dir       = "/vm"
	PlanPath  = Dir + "/plan.json"
	ModuleDir = Dir + "/modules"
	// ResultPort carries messages. The first serial port stays with the kernel
	// console: printk would cut through the middle of a JSON line.
	ResultPort = "/dev/ttyS1"
)

// The users of the guest. UID 4243 is an ordinary account without subordinate
// ids, so what works for it works for any unprivileged person.
const (
	Root      = "root"
	Worker    = "worker"
	WorkerUID = 4243
)

// DeadlineText is on the console when the guest ended itself.
const DeadlineText = "guest deadline passed"

const (
	// MaxOutput bounds each captured stream of one case.
	MaxOutput = 256 << 10
	// maxLine holds both streams in base64 and the rest of a message.
	maxLine = 4*MaxOutput + 64<<10
	// DefaultTimeout is for one case. Emulation is roughly ten times slower than
	// the machine, so this is generous for commands that take a second or two.
	DefaultTimeout = time.Minute
)

// A Plan is everything init does in one boot.
type Plan struct {
	// Modules are files to load, in this order.
	Modules []string `json:"modules,omitempty"`
	// Cgroups is the hierarchy to mount.
	Cgroups Cgroups `json:"cgroups,omitempty"`
	// Deadline is the life of the guest from the start of init. The machine
	// powers off by itself, so a killed test leaves no emulator running.
	Deadline time.Duration `json:"deadline"`
	Cases    []Case        `json:"cases"`
}

// Cgroups names the control group layout of the guest.
type Cgroups string

// The three layouts that hosts have. Hybrid is the one systemd calls so:
// controllers on v1, and a v2 tree without any at /sys/fs/cgroup/unified.
const (
	Unified Cgroups = "unified"
	Hybrid  Cgroups = "hybrid"
	Legacy  Cgroups = "legacy"
)

// A Case is one command to run in the guest.
type Case struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// User is Root (also when empty) or Worker.
	User  string   `json:"user,omitempty"`
	Env   []string `json:"env,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	Stdin string   `json:"stdin,omitempty"`
	// Timeout is DefaultTimeout when zero.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Delegate runs the command in a v2 control group that belongs to its user,
	// as a systemd user session does.
	Delegate bool `json:"delegate,omitempty"`
}

// A Result is what one case did.
type Result struct {
	Name string `json:"name"`
	// Exit is the exit status, or -1 when the command was not started or was
	// ended by a signal.
	Exit     int           `json:"exit"`
	Signal   string        `json:"signal,omitempty"`
	Stdout   []byte        `json:"stdout,omitempty"`
	Stderr   []byte        `json:"stderr,omitempty"`
	Cut      bool          `json:"cut,omitempty"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Duration time.Duration `json:"duration"`
	// Leftover names the processes that outlived the case; init killed them.
	Leftover []string `json:"leftover,omitempty"`
	// Err says why the command did not start, or what waiting for it returned.
	Err string `json:"err,omitempty"`
}

// String is for the messages of tests: captured bytes as text, cut short.
func (r Result) String() string {
	const limit = 2000
	text := fmt.Sprintf("%s: exit %d after %v", r.Name, r.Exit, r.Duration.Round(time.Millisecond))
	if r.Signal != "" {
		text += ", " + r.Signal
	}
	if r.TimedOut {
		text += ", timed out"
	}
	if r.Err != "" {
		text += ", " + r.Err
	}
	if len(r.Leftover) > 0 {
		text += fmt.Sprintf(", left behind %q", r.Leftover)
	}
	return text + fmt.Sprintf("\nstdout: %.*q\nstderr: %.*q", limit, r.Stdout, limit, r.Stderr)
}

// A Message is one line on the result port. Exactly one field is set.
type Message struct {
	Ready  *Ready  `json:"ready,omitempty"`
	Result *Result `json:"result,omitempty"`
	// Done is the sentinel: the number of results sent.
	Done *int `json:"done,omitempty"`
	// Fatal says why init could not do its work.
	Fatal string `json:"fatal,omitempty"`
}

// Ready is the first message of a guest.
type Ready struct {
	Release string `json:"release"`
	// Uptime is the kernel's own clock when the guest was set up.
	Uptime time.Duration `json:"uptime"`
}

// A Transcript is what one guest said.
type Transcript struct {
	Ready   *Ready
	Results []Result
}

// Errors of Receive.
var (
	ErrCut   = errors.New("the guest stopped before its last message")
	ErrFatal = errors.New("the guest's init gave up")
)

// Receive reads messages up to the sentinel. The transcript holds what arrived,
// also when there is an error. Results may not outnumber want.
func Receive(r io.Reader, want int) (Transcript, error) {
	var t Transcript
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var m Message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return t, fmt.Errorf("message %.80q: %w", lines.Text(), err)
		}
		done, err := t.add(m, want)
		if done || err != nil {
			return t, err
		}
	}
	if err := lines.Err(); err != nil {
		return t, fmt.Errorf("reading the result port: %w", err)
	}
	return t, fmt.Errorf("%w: %d of %d results", ErrCut, len(t.Results), want)
}

func (t *Transcript) add(m Message, want int) (done bool, err error) {
	switch {
	case m.Fatal != "":
		return true, fmt.Errorf("%w: %s", ErrFatal, m.Fatal)
	case m.Ready != nil:
		t.Ready = m.Ready
	case m.Result != nil:
		if len(t.Results) == want {
			return true, fmt.Errorf("result %q is one more than the %d cases", m.Result.Name, want)
		}
		t.Results = append(t.Results, *m.Result)
	case m.Done != nil:
		if *m.Done != want || len(t.Results) != want {
			return true, fmt.Errorf("%w: the guest counted %d results, %d of %d arrived",
				ErrCut, *m.Done, len(t.Results), want)
		}
		return true, nil
	default:
		return true, errors.New("a message with no content")
	}
	return false, nil
}
