package enforce

import "slices"

// Wall names one promise. The names are fixed: they appear in reports, in the audit log and on
// the command line.
type Wall string

// The walls, in the order in which they are shown.
const (
	FSRead    Wall = "fs.read"    // only listed paths can be read
	FSWrite   Wall = "fs.write"   // only listed paths can be written
	FSProtect Wall = "fs.protect" // protected paths inside writable trees stay as they are
	FSHide    Wall = "fs.hide"    // secret files inside readable trees are not readable
	NetEgress Wall = "net.egress" // nothing leaves but through the proxy
	NetLocal  Wall = "net.local"  // host loopback, abstract and path sockets, VSOCK are out of reach
	Proc      Wall = "proc"       // foreign processes are invisible, not signalable, not traceable
	Kernel    Wall = "kernel"     // small system-call surface
	Priv      Wall = "priv"       // no capabilities, no new privileges, no new user namespace
	Env       Wall = "env"        // only listed variables; no secrets
	Res       Wall = "res"        // processes, memory, CPU, file size, disk, time
	Life      Wall = "life"       // the whole tree dies with the session
)

// Walls returns every wall in display order.
func Walls() []Wall {
	return []Wall{FSRead, FSWrite, FSProtect, FSHide, NetEgress, NetLocal, Proc, Kernel, Priv, Env, Res, Life}
}

// Required returns the walls that the level enforced needs. Res is not among them: each limit is
// its own part, and a limit asked for by name makes that part required (see Limit).
func Required() []Wall {
	return slices.DeleteFunc(Walls(), func(w Wall) bool { return w == Res })
}

// Promise says in one clause what the wall promises.
func (w Wall) Promise() string { return promises[w] }

var promises = map[Wall]string{
	FSRead:    "only listed paths can be read",
	FSWrite:   "only listed paths can be written",
	FSProtect: "protected paths inside writable trees stay as they are",
	FSHide:    "secret files inside readable trees are not readable",
	NetEgress: "nothing leaves this machine but through the proxy",
	NetLocal:  "host loopback, host sockets and VSOCK are out of reach",
	Proc:      "foreign processes are invisible and cannot be signalled or traced",
	Kernel:    "small system-call surface",
	Priv:      "no capabilities, no new privileges, no new user namespace",
	Env:       "only listed variables, no secrets",
	Res:       "processes, memory, open files, file size and /tmp are bounded",
	Life:      "the whole process tree dies with the session",
}

// Mechanism names one way to keep a wall.
type Mechanism string

// The Linux mechanisms.
const (
	MountNS       Mechanism = "mountns"
	Landlock      Mechanism = "landlock"
	LandlockScope Mechanism = "landlock-scope" // ABI 6: signals and abstract sockets
	LandlockTCP   Mechanism = "landlock-tcp"   // ABI 4
	Pins          Mechanism = "pins"           // read-only self-binds of protected paths
	Watch         Mechanism = "watch"          // notification and sweep of absent names
	Masks         Mechanism = "masks"          // unreadable files bound over secrets
	NetNS         Mechanism = "netns"
	Seccomp       Mechanism = "seccomp"
	PidNS         Mechanism = "pidns"
	NoNewPrivs    Mechanism = "no_new_privs"
	UserNS        Mechanism = "userns"
	Supervisor    Mechanism = "supervisor"
	Cgroup        Mechanism = "cgroup"
	Staged        Mechanism = "staged"  // an overlay over the person's folder, applied through a filter
	EBPF          Mechanism = "ebpf"    // programs on the session's control group
	BPFLSM        Mechanism = "bpf-lsm" // programs on the kernel's security hooks
	Rlimit        Mechanism = "rlimit"
	TmpfsSize     Mechanism = "tmpfs-size"
	Pdeathsig     Mechanism = "pdeathsig"
	DeviceRules   Mechanism = "device-rules" // of the control group, backend container
)
