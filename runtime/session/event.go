package session

import (
	"context"

	"coworker/enforce"
	"coworker/netproxy/flow"
)

// Event is something that belongs in the record. The caller of the session turns it into a row.
type Event struct {
	Stage    string // "start", "rules", "exec", "flow", "net", "file", "wall", "sweep", "window", "limit", "end"
	Status   string // "ok", "refused", "failed", "held", …
	Reason   string
	Rule     string   // the rule that decided
	Args     []string // the command line, or the paths concerned
	Resource string   // path, limit or wall concerned
	CallID   string
	Result   string         // digest or summary of the outcome
	Flow     *flow.Record   // of the stage "flow"
	Source   enforce.Source // of the stages "net" and "file": who refused
	Level    enforce.Level
	Walls    map[enforce.Wall]enforce.WallState
}

// Ran is the status of the stage "exec" that tells of a program which a command started. It is news of the kernel, not
// something that anybody asked for.
const Ran = "ran"

// Recorder keeps the record. Its methods may be called from several goroutines.
type Recorder interface {
	// Attest stores an attestation once and returns its id.
	Attest(ctx context.Context, document []byte) (string, error)
	// Record makes events durable in order. If it fails, the action it announces must not run.
	Record(ctx context.Context, attestation string, events ...Event) error
}

// Notice is a line for the person: what happened and, apart, what to do next.
type Notice struct{ Text, Hint string }

// Denial is something that a wall or a limit refused and that a person may grant.
type Denial struct {
	Wall   enforce.Wall `json:"wall"`
	What   string       `json:"what"`
	Needed string       `json:"needed"` // the smallest flag that would allow it
	Source string       `json:"source"` // "limit", "inferred", …
}
