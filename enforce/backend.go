package enforce

// BackendName names one way to build a cell.
type BackendName string

// The backends of this build.
const (
	Native BackendName = "native" // user, mount, pid, ipc, uts, net and cgroup namespaces
	Bare   BackendName = "bare"   // Landlock and seccomp only; partial at best
)

// Availability says whether this machine can use a backend, and if not, why and what one step
// would change that.
type Availability struct {
	Backend BackendName `json:"backend"`
	OK      bool        `json:"ok"`
	Cause   string      `json:"cause,omitempty"`
	Remedy  string      `json:"remedy,omitempty"` // exact commands or file text
}
