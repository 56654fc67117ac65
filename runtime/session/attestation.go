package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/enforce/probe"
	"coworker/runtime/treescan"
)

// Attestation is what was proved before a session's first command: stored once, named by its
// digest in every row. It holds nothing that differs between two runs with the same walls except
// the durations, which are left out of it.
type Attestation struct {
	Version    int                                `json:"version"`
	Backend    enforce.BackendName                `json:"backend"`
	Level      enforce.Level                      `json:"level"`
	Walls      map[enforce.Wall]enforce.WallState `json:"walls"`
	Missing    []string                           `json:"missing,omitempty"`
	Lacking    []string                           `json:"lacking,omitempty"` // what keeps it below hardened
	Probes     []enforce.Probe                    `json:"probes"`
	Limits     []enforce.Limit                    `json:"limits"`
	Landlock   int                                `json:"landlock_abi"`
	Rights     []string                           `json:"landlock_rights,omitempty"`
	Kernel     string                             `json:"kernel"`
	Cell       string                             `json:"cell_sha256"`
	Proxy      string                             `json:"proxy_sha256,omitempty"` // of a session with a network
	SpecDigest string                             `json:"spec_sha256"`
	Notes      []string                           `json:"notes,omitempty"`
}

// plain takes out of the details what differs between two sessions with the same walls: the
// canaries. An attestation then has the same bytes, and is stored once.
func plain(probes []enforce.Probe, t probe.Targets) []enforce.Probe {
	var names []string
	add := func(what, name string) {
		if len(what) > 1 { // an empty one would match everywhere
			names = append(names, what, name)
		}
	}
	add(t.StateFile, "CANARY")
	add(t.PathSocket, "SOCKET")
	add(path.Dir(t.StateFile), "STATE")
	add(t.AbstractSocket, "ABSTRACT")
	add(t.EnvName, "VARIABLE")
	add(t.Secret, "SECRET")
	if t.Egress != nil {
		add(t.Egress.AllowedName, "NAME")
		add(t.Egress.Token, "TOKEN")
	}
	add(t.Scratch, "SCRATCH")
	add(path.Dir(t.Scratch), "SCRATCH")
	replace := strings.NewReplacer(names...)
	out := slices.Clone(probes)
	for i := range out {
		out[i].Detail = number.ReplaceAllString(replace.Replace(out[i].Detail), "N$1")
	}
	return out
}

// number matches process ids, ports, inode and namespace numbers, and how many threads the Go
// runtime had. Other short numbers (signals, counts of a fixed battery) stay.
var number = regexp.MustCompile(`\b[0-9]{3,}\b|\b[0-9]+( threads)`)

func specDigest(s enforce.Spec) (string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("digest of the spec: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// RefusedError says which wall did not hold. Nothing was run.
type RefusedError struct {
	Level, Wanted enforce.Level
	Missing       []string
	Attestation   *Attestation // nil if the battery did not get that far
	Cause         error        // set if the set-up itself did not work
	Remedy        string
}

func (e *RefusedError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("walls not proved: %v", e.Cause)
	}
	text := fmt.Sprintf("walls not proved: level is %s, %s is wanted", e.Level, e.Wanted)
	for _, m := range e.Missing {
		text += "\n  " + m
	}
	return text
}

// Unwrap gives the cause of a set-up that did not work.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Hint is the next step for a person.
func (e *RefusedError) Hint() string {
	if e.Remedy != "" {
		return e.Remedy
	}
	return "run `coworker sandbox status` to see what this machine can have, and what is missing"
}

// ScanError is a tree that could not be looked at whole. Nothing was started.
type ScanError struct {
	Tree string
	Err  error
}

func (e *ScanError) Error() string { return fmt.Sprintf("scan of %q: %v", e.Tree, e.Err) }

// Unwrap gives the cause.
func (e *ScanError) Unwrap() error { return e.Err }

// ExitCode is that of a configuration error: another folder or another limit is the remedy.
func (e *ScanError) ExitCode() int { return 123 }

// Hint is the next step for a person.
func (e *ScanError) Hint() string {
	switch {
	case errors.Is(e.Err, treescan.ErrLimit):
		return "name the folder under [scan] exclude in the settings; it is then not visible inside"
	case errors.Is(e.Err, fs.ErrPermission):
		return "the folder must be readable for the user that the session runs as"
	}
	return "check that the folder stays in place while the session starts"
}
