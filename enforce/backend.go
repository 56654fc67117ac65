package enforce

import (
	"context"
	"os"
)

// BackendName names one way to build a cell.
type BackendName string

// The backends of this build.
const (
	Native    BackendName = "native"    // user, mount, pid, ipc, uts, net and cgroup namespaces
	Bare      BackendName = "bare"      // Landlock and seccomp only; partial at best
	Container BackendName = "container" // the same namespaces, made by coworker-box
)

// Namespaces says whether cells of this backend have namespaces and a root of their own.
func (b BackendName) Namespaces() bool { return b == Native || b == Container }

// Availability says whether this machine can use a backend, and if not, why and what one step
// would change that.
type Availability struct {
	Backend BackendName `json:"backend"`
	OK      bool        `json:"ok"`
	Cause   string      `json:"cause,omitempty"`
	Remedy  string      `json:"remedy,omitempty"` // exact commands or file text
}

// Launch is what a backend needs to start a cell besides the Spec.
type Launch struct {
	Identity Identity // whom to run as
	Fault    Wall     // see Spec.Fault

	// Complete returns the whole Spec. A backend calls it once, after it has started a process that
	// takes its time to start, so that the trees are looked at meanwhile.
	Complete func() (Spec, error)

	Program  *os.File // the verified binary of the cell; stays owned by the caller
	CellWire *os.File // becomes descriptor 3 of the cell; stays owned by the caller
	Stderr   *os.File // where a crash of the cell's own code is written; stays owned by the caller

	// Made is told about the sockets for the proxy as soon as they are there, while the cell still starts; nil for a Spec
	// without a network. It must not block. The sockets belong to whoever it tells.
	Made func(*Egress)

	// Lend tells the path of the session's control group below the mount of each hierarchy, for a backend that has another
	// program put processes into it; empty if there is no group, or not in this process.
	Lend func() (string, error)

	// Join moves a process into the session's control group; it may take some milliseconds. The
	// cell must be in the group before it starts. A helper process that was moved so that the cell
	// is born in the group is moved out again with Leave, before Start returns or soon after:
	// Settled then waits for that.
	Join, Leave func(pid int) error
}

// Backend is one way to build a cell.
type Backend interface {
	Name() BackendName
	// Available says whether this machine can use it, without starting anything that stays.
	Available(ctx context.Context) Availability
	// Start starts a cell that waits for its first message. On error nothing is left running.
	Start(ctx context.Context, l Launch) (*Cell, error)
}

// Cell is a started cell as the supervisor holds it. Its functions may be called from several
// goroutines.
type Cell struct {
	Pid   int      // host pid of the cell
	Notes []string // what could not be shared, for the report

	// MountInfo is the cell's mount table, pollable (proc_pid_mounts(5)); nil where the backend
	// makes no mounts. The caller owns it.
	MountInfo *os.File
	// Cover puts back a pin or a mask; nil where the backend makes no mounts.
	Cover func(tree, rel string, kind CoverKind) error
	// Alone makes the attempts of the half Namespaces, once, after Settled; nil where the backend makes no namespaces.
	Alone func(t AloneTargets, literals []string) ([]Probe, error)
	// Egress is what Launch.Made was told; nil if the Spec asks for no network.
	Egress *Egress

	// Settled waits until no process of coworker's own is in the session's control group any more.
	Settled func() error
	// Kill ends the cell and everything it started, and waits until it is gone.
	Kill func() error
	// Ended is closed when the cell has ended, however it did.
	Ended <-chan struct{}
	// How tells how it ended; valid after Ended is closed.
	How func() string
}

// Egress is what a backend made in the cell's network namespace for the proxy outside.
type Egress struct {
	// Sockets listen on addresses of the cell's loopback, in the order of enforce/redirect.Listen. The caller owns them.
	Sockets []*os.File
	IPv6    bool // the second half of the sockets is there
	// Transparent: connections to the synthetic addresses are led to the proxy, so that programs need not know of it.
	Transparent bool
}

// Close closes the sockets.
func (e *Egress) Close() {
	if e == nil {
		return
	}
	for _, f := range e.Sockets {
		f.Close()
	}
}
