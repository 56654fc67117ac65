package ward

import (
	"time"

	"coworker/enforce"
)

// Ward holds one session. Its methods may be called from several goroutines. Order: Join the keeper, Guard the trees, then
// what State tells counts; Remove ends everything inside and takes the walls down, in this order.
type Ward interface {
	// Join moves a process with all its threads into the session's group. Call it before the process opens a socket: a
	// socket keeps the group of its birth. The first process that joins is the keeper, whose network namespace becomes
	// the one whose loopback the programs let pass.
	Join(pid int) error
	// Leave moves a process back to where the caller is.
	Leave(pid int) error
	// Guard tells which trees there are, with what is protected and hidden in them. It is called once, after Join and
	// before the first command.
	Guard(trees []enforce.Tree) error

	Limits() []enforce.Limit // which limits are in force, and why the others are not
	CanFreeze() bool
	Freeze(limit time.Duration) error // Thaw undoes it, also after an error
	Thaw() error
	Kill() error // ends everything in the group, frozen or not; does not wait
	Counts() Counts
	State() State
	// Check asks the kernel whether each wall that State tells of is where it was put. The ward does so by itself all the
	// time, see Fallen.
	Check() error
	// Refusals are attempts that the programs refused and told about, and programs that were started (enforce.HookExec).
	// Remove closes it. Nobody has to read it: what does not fit is counted in Counts.
	Refusals() <-chan enforce.Refusal
	// Fallen gets one error when a wall is gone that was there. Remove closes it.
	Fallen() <-chan error
	Remove() error
}

// Counts are how often the session ran into something.
type Counts struct {
	OOMKills  int64 // processes killed for lack of memory
	PidsMax   int64 // forks refused
	Unheard   int64 // refusals that nobody was told of, because there were too many at once
	Processes int64 // programs started inside, where exec events are seen
}

// State says what holds the session besides its limits.
type State struct {
	Egress Programs `json:"egress"` // eBPF on the control group: network
	Guard  Programs `json:"guard"`  // BPF-LSM: files and sockets
	Helper bool     `json:"helper"` // coworker-wallsd holds them, not this process
}

// Programs are the kernel programs of one mechanism.
type Programs struct {
	Hooks   []string `json:"hooks,omitempty"`   // the attached ones, sorted
	Missing []string `json:"missing,omitempty"` // what this kernel does not have, "hook: why", sorted
	Why     string   `json:"why,omitempty"`     // set if there is none: why, and what would change that
}

// On says whether the mechanism keeps anything.
func (p Programs) On() bool { return len(p.Hooks) > 0 }

// Fall is the error of a mechanism that is gone, where it is not the programs on the control group.
type Fall struct {
	Source enforce.Source
	Err    error
}

func (f *Fall) Error() string { return f.Err.Error() }
func (f *Fall) Unwrap() error { return f.Err }
