package probe

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"coworker/enforce"
)

// status is what /proc/PID/status says about one thread, see proc_pid_status(5).
type status struct {
	tid        int
	noNewPrivs int
	seccomp    int
	caps       map[string]uint64
}

var capSets = []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}

func readThreads() ([]status, error) {
	names, err := list("/proc/self/task")
	if err != nil {
		return nil, err
	}
	all := make([]status, 0, len(names))
	for _, name := range names {
		data, err := os.ReadFile("/proc/self/task/" + name + "/status")
		if err != nil {
			return nil, err
		}
		s, err := parseStatus(string(data))
		if err != nil {
			return nil, fmt.Errorf("thread %s: %w", name, err)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("/proc/self/task is empty")
	}
	return all, nil
}

// parseStatus wants every field that it reports: a missing one must not look like a zero.
func parseStatus(data string) (status, error) {
	s := status{noNewPrivs: -1, seccomp: -1, caps: map[string]uint64{}}
	for line := range strings.Lines(data) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "Pid":
			s.tid, err = strconv.Atoi(value)
		case "NoNewPrivs":
			s.noNewPrivs, err = strconv.Atoi(value)
		case "Seccomp":
			s.seccomp, err = strconv.Atoi(value)
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			s.caps[key], err = strconv.ParseUint(value, 16, 64)
		}
		if err != nil {
			return s, fmt.Errorf("%s %q: %w", key, value, err)
		}
	}
	if s.tid == 0 || s.noNewPrivs < 0 || s.seccomp < 0 || len(s.caps) != len(capSets) {
		return s, fmt.Errorf("status of thread %d lacks a field", s.tid)
	}
	return s, nil
}

// checkCaps wants all five sets empty.
func (s status) checkCaps() error { return s.wantEmpty(capSets) }

// checkHeldCaps leaves the bounding set aside.
func (s status) checkHeldCaps() error {
	return s.wantEmpty(slices.DeleteFunc(slices.Clone(capSets), func(set string) bool { return set == "CapBnd" }))
}

// noCaps is the check that fits the backend: in bare a person without CAP_SETPCAP cannot empty the
// bounding set. It is worth nothing under no_new_privs, which has its own attempt.
func (b *battery) noCaps() func(status) error {
	if b.Backend == enforce.Bare && os.Getuid() != 0 {
		return status.checkHeldCaps
	}
	return status.checkCaps
}

func (s status) wantEmpty(sets []string) error {
	for _, set := range sets {
		if s.caps[set] != 0 {
			return fmt.Errorf("thread %d has %s %#x", s.tid, set, s.caps[set])
		}
	}
	return nil
}

func (s status) checkNoNewPrivs() error {
	if s.noNewPrivs != 1 {
		return fmt.Errorf("thread %d may gain privileges", s.tid)
	}
	return nil
}

// everyThread applies a check to the threads that existed when the battery began; later ones
// inherit from them.
func (b *battery) everyThread(check func(status) error) result {
	if b.thrErr != nil {
		return unclear(b.thrErr.Error())
	}
	for _, s := range b.threads {
		if err := check(s); err != nil {
			return leaked(err.Error())
		}
	}
	return stopped(fmt.Sprintf("%d threads", len(b.threads)))
}
