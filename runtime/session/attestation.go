package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"coworker/enforce"
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
	Probes     []enforce.Probe                    `json:"probes"`
	Limits     []enforce.Limit                    `json:"limits"`
	Landlock   int                                `json:"landlock_abi"`
	Rights     []string                           `json:"landlock_rights,omitempty"`
	Kernel     string                             `json:"kernel"`
	Cell       string                             `json:"cell_sha256"`
	SpecDigest string                             `json:"spec_sha256"`
	Notes      []string                           `json:"notes,omitempty"`
}

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
