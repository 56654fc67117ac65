package enforce

import "path"

// NetMode says how much of the network a session may use.
type NetMode string

// The modes. In all of them the session's network namespace has no way out of its own; in the last two its proxy has one.
const (
	NetNone      NetMode = "none"      // no packet leaves
	NetAllowlist NetMode = "allowlist" // what the rules name, through the proxy
	NetOpen      NetMode = "open"      // every public address, through the proxy
)

// Egress says whether a session with this mode has a proxy.
func (m NetMode) Egress() bool { return m == NetAllowlist || m == NetOpen }

// Identity is who the session runs as, inside and outside the wall: one id, mapped to itself.
type Identity struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Name string `json:"name"`
	Home string `json:"home"` // absolute path of the real home folder; inside it is a private one
}

// Tree is one folder or file of the host that is visible inside at its own path.
type Tree struct {
	Path     string `json:"path"` // absolute and canonical; any bytes but NUL
	Writable bool   `json:"writable"`
	Device   uint64 `json:"device"` // st_dev and st_ino as the supervisor resolved them:
	Inode    uint64 `json:"inode"`  // the keeper resolves again and refuses a difference
	File     bool   `json:"file"`   // a regular file rather than a folder
	// Stage is the absolute path of a folder of coworker's state with the folders upper and work: what is written in the
	// tree goes there (overlayfs), and the host's folder does not change. Empty: the tree is live.
	Stage string `json:"stage,omitempty"`

	// What the scan found inside; paths are relative to Path, sorted, never "..".
	Pins      []string `json:"pins,omitempty"`      // ancestor folders of protected and masked paths
	Protected []string `json:"protected,omitempty"` // present protected files and folders
	Masks     []string `json:"masks,omitempty"`     // secret files and host sockets
	MaskDirs  []string `json:"mask_dirs,omitempty"` // folders that are masked as a whole

	// For programs on the kernel's security hooks, which judge names (enforce/guard); not part of what a keeper builds.
	Lifted []string `json:"lifted,omitempty"` // relative paths that a person named: not protected, whether they exist or not
	Sealed bool     `json:"sealed,omitempty"` // no repository may be made in it
	Own    bool     `json:"own,omitempty"`    // a folder of coworker's: neither protected nor hidden, wherever it lies
}

// Spec is what a session asks for. It is a value: the same Spec gives the same plan. Package
// runtime/wallspec makes it from flags, config and the scan.
type Spec struct {
	Workspace string   `json:"workspace"` // absolute path; also the working folder
	Trees     []Tree   `json:"trees"`     // workspace first, then --read and --write
	Identity  Identity `json:"identity"`
	Net       NetMode  `json:"net"`
	// Literals are addresses that a rule consists of: a program that dials one directly is led to the proxy too.
	Literals []string `json:"literals,omitempty"`
	Env      []string `json:"env"` // NAME=VALUE, exactly what commands get
	Limits   Limits   `json:"limits"`
	Debug    bool     `json:"debug"` // ptrace inside the private pid namespace

	// HomeStore is the host folder that backs the folders of the private home which persist
	// (caches and tools); HomeDirs names them relative to the home.
	HomeStore string   `json:"home_store"`
	HomeDirs  []string `json:"home_dirs"`
	// HomeFiles are made anew for each session (start-up files, git identity).
	HomeFiles []File `json:"home_files,omitempty"`
	// CacheStore is the folder of HomeStore that backs the private layers of Caches. Two sessions at
	// once have two of them, because overlays must not share one.
	CacheStore string `json:"cache_store,omitempty"`
	// Caches are host caches under the private ones: Lower is read-only, writes go to CacheStore.
	Caches []Cache `json:"caches,omitempty"`
	// Toolchains are host folders visible read-only at their own path.
	Toolchains []string `json:"toolchains,omitempty"`
	// Etc are the synthesised files of /etc; EtcAllow names what else of the host's /etc is
	// visible, relative to it.
	Etc      []File   `json:"etc,omitempty"`
	EtcAllow []string `json:"etc_allow,omitempty"`

	// Fault names a wall to leave out. It is honoured only by binaries built with the tag
	// walltest, which exist to show that the battery notices.
	Fault Wall `json:"fault,omitempty"`
}

// PrivateHome is the home folder of what runs inside. A backend without mounts cannot put another
// folder in the place of the real home, so there it is one of the store.
func (s Spec) PrivateHome(b BackendName) string {
	if b == Bare {
		return path.Join(s.HomeStore, "home")
	}
	return s.Identity.Home
}

// File is a small file that coworker makes inside the wall.
type File struct {
	Path string `json:"path"` // relative to the folder it is made in
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"`
}

// Cache is a host cache folder that shows through the private one.
type Cache struct {
	Dir   string `json:"dir"`   // relative to the home
	Lower string `json:"lower"` // absolute host path
}

// Limits bound what a session may use. Zero means the default of the backend.
type Limits struct {
	Processes int64    `json:"processes"`
	Memory    int64    `json:"memory"`     // bytes
	CPUs      float64  `json:"cpus"`       // 1.5 = one and a half cores
	OpenFiles int64    `json:"open_files"` // per process
	FileSize  int64    `json:"file_size"`  // bytes per file
	Tmp       int64    `json:"tmp"`        // bytes of /tmp, /dev/shm, /run and the home root together
	Time      int64    `json:"time"`       // seconds that one command may take; kept by the supervisor
	Named     []string `json:"named"`      // limits asked for by name: "processes", "memory", "cpus", …
}

// Limit is the state of one limit in a running session.
type Limit struct {
	Name      string    `json:"name"`
	Value     int64     `json:"value"`
	Active    bool      `json:"active"`
	Mechanism Mechanism `json:"mechanism,omitempty"`
	Named     bool      `json:"named"`
	Detail    string    `json:"detail,omitempty"`
}

// CoverKind says how a path of a tree is covered.
type CoverKind string

// The ways to cover a path.
const (
	CoverFolder   CoverKind = "pin"       // the folder bound on itself: it cannot be renamed or removed
	CoverReadOnly CoverKind = "read-only" // bound on itself, read-only
	CoverMask     CoverKind = "mask"      // an unreadable file or folder bound over it
	CoverDetach   CoverKind = "detach"    // the whole tree taken away; for the scratch repository of the probes
)
