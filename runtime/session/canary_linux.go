package session

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/probe"
)

// canaries are fresh targets outside the wall that a probe must fail to reach. Their owner
// closes them when the session is proved.
type canaries struct {
	targets  probe.Targets
	folder   *ownFolder
	tcp4     *net.TCPListener
	tcp6     *net.TCPListener // nil on hosts without IPv6
	udp      *net.UDPConn
	abstract *net.UnixListener
	path     *net.UnixListener
}

func randomName(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

// newCanaries makes them below stateDir. On error everything made so far is removed.
func newCanaries(stateDir, id string) (_ *canaries, err error) {
	c := &canaries{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	secret := "canary-" + randomName(16)
	if c.folder, err = newOwnFolder(filepath.Join(stateDir, "probe"), id); err != nil {
		return nil, fmt.Errorf("make canaries: %w", err)
	}
	stateFile := filepath.Join(c.folder.path, "canary")
	if err := os.WriteFile(stateFile, []byte(secret), 0o644); err != nil {
		return nil, fmt.Errorf("make canaries: %w", err)
	}
	c.targets = probe.Targets{
		StateFile: stateFile, Process: os.Getpid(), EnvName: "COWORKER_CANARY_" + randomName(8), Secret: secret,
		AbstractSocket: "coworker-canary-" + randomName(8),
	}
	if err := c.listen(); err != nil {
		return nil, err
	}
	if err := c.namespaces(); err != nil {
		return nil, err
	}
	if err := os.Setenv(c.targets.EnvName, secret); err != nil {
		return nil, fmt.Errorf("make canaries: %w", err)
	}
	return c, nil
}

func (c *canaries) listen() error {
	var err error
	loopback := net.IPv4(127, 0, 0, 1)
	if c.tcp4, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback}); err != nil {
		return fmt.Errorf("canary listener: %w", err)
	}
	c.targets.LoopbackPort = c.tcp4.Addr().(*net.TCPAddr).Port
	if c.tcp6, err = net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback}); err == nil {
		c.targets.LoopbackPort6 = c.tcp6.Addr().(*net.TCPAddr).Port
	}
	if c.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: loopback}); err != nil {
		return fmt.Errorf("canary listener: %w", err)
	}
	c.targets.UDPPort = c.udp.LocalAddr().(*net.UDPAddr).Port
	if c.abstract, err = net.ListenUnix("unix", &net.UnixAddr{Name: "@" + c.targets.AbstractSocket}); err != nil {
		return fmt.Errorf("canary listener: %w", err)
	}
	// A socket path holds 107 bytes (unix(7)); the state folder may be deeper than that.
	c.targets.PathSocket = filepath.Join(c.folder.path, "socket")
	short := fmt.Sprintf("/proc/self/fd/%d/socket", c.folder.owner.Fd())
	if c.path, err = net.ListenUnix("unix", &net.UnixAddr{Name: short}); err != nil {
		return fmt.Errorf("canary listener: %w", err)
	}
	c.path.SetUnlinkOnClose(false) // its name goes with the folder
	return nil
}

func (c *canaries) namespaces() error {
	for name, text := range map[string]*string{
		"pid": &c.targets.HostPidNS, "net": &c.targets.HostNetNS, "mnt": &c.targets.HostMntNS,
	} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return fmt.Errorf("read own %s namespace: %w", name, err)
		}
		*text = link
	}
	return nil
}

// touched reports, from outside, whether anything reached a canary.
func (c *canaries) touched() []enforce.Probe {
	var probes []enforce.Probe
	add := func(name string, wall enforce.Wall, reached bool) {
		p := enforce.Probe{Name: name, Wall: wall, Want: enforce.Stopped, Got: enforce.Stopped, Detail: "nothing arrived", Where: "outside"}
		if reached {
			p.Got, p.Detail = enforce.Leaked, "a connection from inside arrived"
		}
		probes = append(probes, p)
	}
	add("net.local/outside-tcp4", enforce.NetLocal, c.reachedTCP(c.tcp4))
	if c.tcp6 != nil {
		add("net.local/outside-tcp6", enforce.NetLocal, c.reachedTCP(c.tcp6))
	}
	add("net.local/outside-udp", enforce.NetLocal, c.reachedUDP())
	add("net.local/outside-abstract", enforce.NetLocal, readable(c.abstract))
	add("net.local/outside-path-socket", enforce.NetLocal, readable(c.path))
	return probes
}

// canaryWait bounds the wait for the words of whoever connected.
const canaryWait = 100 * time.Millisecond

// reachedTCP tells a connection from inside, which says the secret, from that of a stranger on
// the host who tries ports.
func (c *canaries) reachedTCP(l *net.TCPListener) bool {
	for range 16 {
		if !readable(l) {
			return false
		}
		conn, err := l.Accept()
		if err != nil {
			return true
		}
		conn.SetReadDeadline(time.Now().Add(canaryWait))
		said, _ := io.ReadAll(io.LimitReader(conn, 256))
		conn.Close()
		if strings.Contains(string(said), c.targets.Secret) {
			return true
		}
	}
	return true // somebody floods the port: nothing can be told
}

// reachedUDP is the same for datagrams.
func (c *canaries) reachedUDP() bool {
	buf := make([]byte, 256)
	for range 16 {
		if !readable(c.udp) {
			return false
		}
		n, _, err := c.udp.ReadFromUDP(buf)
		if err != nil || strings.Contains(string(buf[:n]), c.targets.Secret) {
			return true
		}
	}
	return true
}

// readable asks the kernel whether a connection or a datagram waits. (A Go deadline in the past
// would answer without looking.)
func readable(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true // fail closed: a canary that cannot be asked counts as reached
	}
	ready := true
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, pollErr := unix.Poll(fds, 0)
		for pollErr == unix.EINTR { // the Go runtime signals its threads; poll(2) looks at that before it looks at the time
			n, pollErr = unix.Poll(fds, 0)
		}
		ready = pollErr != nil || n > 0
	})
	return ready || err != nil
}

// close ends the listeners and removes the files. It is safe on a half-made value.
func (c *canaries) close() error {
	var errs []error
	if c.tcp4 != nil {
		errs = append(errs, c.tcp4.Close())
	}
	if c.tcp6 != nil {
		errs = append(errs, c.tcp6.Close())
	}
	if c.udp != nil {
		errs = append(errs, c.udp.Close())
	}
	for _, l := range []*net.UnixListener{c.abstract, c.path} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if c.targets.EnvName != "" {
		os.Unsetenv(c.targets.EnvName)
	}
	return errors.Join(append(errs, c.folder.remove())...)
}
