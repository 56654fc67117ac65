package probe

// Targets are the canaries of one session: fresh, random, and out of reach if the walls hold.
type Targets struct {
	StateFile      string `json:"state_file"`      // file in coworker's state folder
	LoopbackPort   int    `json:"loopback_port"`   // host listener on 127.0.0.1
	LoopbackPort6  int    `json:"loopback_port_6"` // host listener on ::1; 0 without IPv6
	UDPPort        int    `json:"udp_port"`        // host UDP socket on 127.0.0.1
	AbstractSocket string `json:"abstract_socket"` // host abstract socket, without the leading NUL
	PathSocket     string `json:"path_socket"`     // host path socket
	Process        int    `json:"process"`         // host pid that must not be signalled
	EnvName        string `json:"env_name"`        // variable in the supervisor's environment
	HostPidNS      string `json:"host_pid_ns"`     // link text of the supervisor's namespaces
	HostNetNS      string `json:"host_net_ns"`
	HostMntNS      string `json:"host_mnt_ns"`
	Scratch        string `json:"scratch"` // scratch repository, mounted writable with the same pins
	// WorkspaceSocket is a socket of the host's in the scratch repository; empty where it is mounted live.
	WorkspaceSocket string `json:"workspace_socket,omitempty"`
	Secret          string `json:"secret"` // content of every canary file; must not be seen inside

	// EBPF names the hooks of enforce/egress that hold this session, none without them.
	EBPF []string `json:"ebpf,omitempty"`

	// Egress is nil in a session that has no proxy.
	Egress *Egress `json:"egress,omitempty"`
}

// Egress says what the proxy of a session answers until the walls are proved. All of it is random and of this session
// only, so that a stranger who listens on the same port cannot give the right answers, and no real host is contacted.
type Egress struct {
	AllowedName string `json:"allowed_name"` // the proxy answers for it on port 443, with the token
	// DeniedName is a name that no rule allows; empty in a session that allows every name.
	DeniedName string `json:"denied_name"`
	Token      string `json:"token"`
	ProxyPort  uint16 `json:"proxy_port"` // on 127.0.0.1 and, with IPv6, on ::1
	// TransparentPort takes the connections that the kernel redirects. Nobody may come to it directly.
	TransparentPort uint16 `json:"transparent_port"`
	IPv6            bool   `json:"ipv6"`        // the same listeners are on ::1
	Transparent     bool   `json:"transparent"` // connections to synthetic addresses are redirected
}
