package probe

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

func local(s Setup) []attempt {
	add := func(name string, run func(*battery) result) attempt {
		return attempt{name: name, wall: enforce.NetLocal, run: run}
	}
	socket := func(name string, family, kind, proto uintptr) attempt {
		return add(name, func(*battery) result { return makeSocket(family, kind, proto) })
	}
	all := []attempt{
		add("loopback4", func(b *battery) result {
			return b.loopback(unix.AF_INET, b.Targets.LoopbackPort, &unix.SockaddrInet4{Port: b.Targets.LoopbackPort, Addr: [4]byte{127, 0, 0, 1}})
		}),
		add("loopback-any", func(b *battery) result { // 0.0.0.0 means this host to connect(2)
			return b.loopback(unix.AF_INET, b.Targets.LoopbackPort, &unix.SockaddrInet4{Port: b.Targets.LoopbackPort})
		}),
		add("udp", (*battery).loopbackUDP),
		add("abstract", (*battery).abstract),
		add("path", func(b *battery) result { return b.pathSocket(b.Targets.PathSocket) }),
		add("service-sockets", serviceSockets),
		{name: "namespace", wall: enforce.NetLocal, only: enforce.Native,
			run: func(b *battery) result { return judgeOwn("/proc/self/ns/net", b.Targets.HostNetNS) }},
		socket("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		socket("vsock-high-bits", unix.AF_VSOCK|highBits, unix.SOCK_STREAM, 0),
		socket("bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1),
		socket("can", unix.AF_CAN, unix.SOCK_RAW, 1),
		socket("alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		socket("tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0),
		socket("key", unix.AF_KEY, unix.SOCK_RAW, 2),
		socket("qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0),
		socket("smc", unix.AF_SMC, unix.SOCK_STREAM, 0),
	}
	for _, n := range []struct {
		name  string
		proto uintptr
	}{
		{"sock-diag", unix.NETLINK_SOCK_DIAG}, {"xfrm", unix.NETLINK_XFRM}, {"audit", unix.NETLINK_AUDIT},
		{"connector", unix.NETLINK_CONNECTOR}, {"netfilter", unix.NETLINK_NETFILTER},
		{"uevent", unix.NETLINK_KOBJECT_UEVENT}, {"generic", unix.NETLINK_GENERIC},
	} {
		all = append(all, socket("netlink-"+n.name, unix.AF_NETLINK, unix.SOCK_RAW, n.proto))
	}
	if s.Targets.WorkspaceSocket != "" {
		all = append(all, add("workspace-socket", workspaceSocket))
	}
	if s.Targets.LoopbackPort6 != 0 {
		all = append(all, add("loopback6", func(b *battery) result {
			return b.loopback(unix.AF_INET6, b.Targets.LoopbackPort6, &unix.SockaddrInet6{Port: b.Targets.LoopbackPort6, Addr: [16]byte{15: 1}})
		}))
	}
	return all
}

// patience bounds every wait for an answer of the loopback.
const patience = 200 // milliseconds

func (b *battery) loopback(family, port int, sa unix.Sockaddr) result {
	if port <= 0 {
		return unclear("the setup names no target")
	}
	if e := b.Targets.Egress; e != nil && (port == int(e.ProxyPort) || port == int(e.TransparentPort)) {
		return unclear("the session's own proxy has the port of the canary")
	}
	fd, err := inet(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, sa)
	if err == unix.EINPROGRESS {
		err = awaitConnect(fd)
	}
	if err == nil {
		// The supervisor looks at its listener too: this tells the battery from a stranger on the host.
		unix.Write(fd, []byte(b.Targets.Secret))
	}
	return judge(err, append(b.localRefused(), b.unreachable()...), past)
}

// awaitConnect waits for a connection of a non-blocking socket and returns how it ended.
func awaitConnect(fd int) error {
	n, err := poll(fd, unix.POLLOUT)
	if err != nil || n == 0 {
		return unix.ETIMEDOUT
	}
	return socketError(fd)
}

func poll(fd int, events int16) (int, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds, patience)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// loopbackUDP sends to the host's socket. Only the refusal (an ICMP message, which the loopback
// delivers at once) proves that nobody took the datagram.
func (b *battery) loopbackUDP() result {
	if b.Targets.UDPPort <= 0 {
		return unclear("the setup names no target")
	}
	fd, err := inet(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	if err = unix.Connect(fd, &unix.SockaddrInet4{Port: b.Targets.UDPPort, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		_, err = unix.Write(fd, []byte(b.Targets.Secret))
	}
	if err != nil {
		return judge(err, append(b.localRefused(), b.unreachable()...), nil)
	}
	if b.control {
		return leaked("a datagram was taken")
	}
	if n, err := poll(fd, unix.POLLIN); err == nil && n == 0 {
		return leaked("a datagram was taken")
	}
	_, err = unix.Read(fd, make([]byte, 16))
	return judge(err, b.localRefused(), nil)
}

// localSocket makes a stream socket of the family UNIX.
func localSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

func (b *battery) abstract() result {
	if b.Targets.AbstractSocket == "" {
		return unclear("the setup names no target")
	}
	fd, err := localSocket()
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + b.Targets.AbstractSocket})
	// EPROTOTYPE: the socket was found, and is of another type.
	return judge(err, b.scoped(b.ownNet, unix.ECONNREFUSED), errnos{unix.EAGAIN, unix.EPROTOTYPE})
}

func (b *battery) pathSocket(name string) result {
	if name == "" {
		return unclear("the setup names no target")
	}
	fd, err := localSocket()
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	err = connectPath(fd, name)
	return judge(err, b.hidden(), errnos{unix.EAGAIN, unix.EPROTOTYPE, unix.ECONNREFUSED}).at(name)
}

// workspaceSocket connects to a socket that somebody on the host listens on, in a staged folder. The overlay shows a node of
// its own, which nobody listens on: only that answer proves it, because an absent socket cannot be reached either.
func workspaceSocket(b *battery) result {
	fd, err := localSocket()
	if err != nil {
		return judge(err, b.noSocket(), nil)
	}
	defer unix.Close(fd)
	err = connectPath(fd, b.Targets.WorkspaceSocket)
	return judge(err, errnos{unix.ECONNREFUSED}, errnos{unix.EAGAIN, unix.EPROTOTYPE}).at(b.Targets.WorkspaceSocket)
}

// maxSocketPath is what an address holds (unix(7)); longer paths go through a descriptor of their
// folder, as an attacker's would.
const maxSocketPath = 107

func connectPath(fd int, name string) error {
	if len(name) <= maxSocketPath {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	}
	dir, err := unix.Open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, path.Base(name))})
}

// serviceSockets tries the sockets through which one message starts a process on the host.
func serviceSockets(b *battery) result {
	uid := b.Spec.Identity.UID
	names := []string{
		"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/libvirt/libvirt-sock",
		"/run/snapd.socket", "/run/udev/control", "/run/nscd/socket", "/tmp/.X11-unix/X0",
		fmt.Sprintf("/run/user/%d/bus", uid), fmt.Sprintf("/run/user/%d/systemd/private", uid),
		fmt.Sprintf("/run/user/%d/docker.sock", uid), fmt.Sprintf("/run/user/%d/podman/podman.sock", uid),
		fmt.Sprintf("/run/user/%d/wayland-0", uid), fmt.Sprintf("/tmp/tmux-%d/default", uid),
	}
	results := make([]result, 0, len(names))
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err == unix.ENOENT || err == unix.ENOTDIR {
			continue // absence is the wall, in bare too
		}
		if !b.listed(name) {
			results = append(results, b.pathSocket(name))
		}
	}
	if len(results) == 0 {
		return stopped("none is visible")
	}
	return worst(results...)
}
