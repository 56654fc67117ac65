package install

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Where things are put, below the root of the machine.
const (
	Program    = "/usr/local/lib/coworker/coworker-wallsd"
	unitSocket = "/etc/systemd/system/coworker-wallsd.socket"
	unitHelper = "/etc/systemd/system/coworker-wallsd.service"
	profile    = "/etc/apparmor.d/coworker"
	socket     = "/run/coworker/wallsd.sock"
)

//go:embed coworker-wallsd.socket
var socketText string

//go:embed coworker-wallsd.service
var serviceText string

// mark is in the first line of every text file that is written here.
const mark = "# Written by coworker sandbox setup"

// Machine is what the helper is put onto.
type Machine struct {
	Root     string // "/"; a test has another
	Systemd  bool   // it was booted with systemd
	AppArmor bool   // it lets programs make user namespaces only by a profile
	Coworker string // absolute path of the coworker that the profile is for
	Helper   []byte // the helper's program, verified; nil to remove
	Run      func(ctx context.Context, name string, args ...string) error
}

// Here describes this machine.
func Here(coworker string, helper []byte) Machine {
	m := Machine{Root: "/", Coworker: coworker, Helper: helper, Run: run}
	info, err := os.Lstat("/run/systemd/system") // sd_booted(3)
	m.Systemd = err == nil && info.IsDir()
	data, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	m.AppArmor = err == nil && strings.TrimSpace(string(data)) == "1"
	return m
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Step is one change to the machine.
type Step struct {
	Text string // for a person, before it happens
	do   func(ctx context.Context) error
}

// Do makes the changes in their order, and stops at the first that does not work.
func Do(ctx context.Context, steps []Step) error {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Text, err)
		}
	}
	return nil
}

// ErrForeign marks a file or folder that is not to be touched.
var ErrForeign = errors.New("not written by coworker sandbox setup")

func (m Machine) at(path string) string { return filepath.Join(m.Root, path) }

// Command is what starts the helper where there is no systemd.
func Command() string { return Program + " --socket " + socket }

func (m Machine) profileText() (string, error) {
	if strings.ContainsAny(m.Coworker, "\"\\*?[]{}^@, \t\n") || !filepath.IsAbs(m.Coworker) {
		return "", fmt.Errorf("the path %q of coworker cannot be written in a profile of AppArmor: install it elsewhere, for example in /usr/local/bin", m.Coworker)
	}
	return fmt.Sprintf(mark+"; coworker sandbox remove takes it away.\nabi <abi/4.0>,\ninclude <tunables/global>\nprofile coworker %s flags=(unconfined) {\n  userns,\n}\n", m.Coworker), nil
}

// Setup lists what has to change until the helper is installed; nothing if it is.
func (m Machine) Setup(ctx context.Context) ([]Step, error) {
	if len(m.Helper) == 0 {
		return nil, errors.New("bug: no program to install")
	}
	p := &plan{Machine: m}
	changed, err := p.installProgram()
	if err != nil {
		return nil, err
	}
	if err := p.installUnits(ctx, changed); err != nil {
		return nil, err
	}
	err = p.installProfile()
	return p.steps, err
}
