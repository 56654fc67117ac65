package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"coworker/netproxy"
	"coworker/netproxy/control"
	"coworker/netproxy/dial"
	"coworker/netproxy/transparent"
	"coworker/platform/selfconfine"
)

// The proxy's own limits. Tunnels hold no memory of their own, so this is far above what ten thousand need.
const (
	dataBytes   = 1 << 30
	goBytes     = 384 << 20
	descriptors = 1 << 20
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "coworker-proxy:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 1 {
		return errors.New("this program is started by coworker, not by hand")
	}
	sockets := present()
	line, err := inherited(control.FDControl, "control")
	if err != nil {
		return fmt.Errorf("this program is started by coworker, not by hand: %w", err)
	}
	// Started through a descriptor, the process has that number for its name. It is for people only.
	_ = os.WriteFile("/proc/self/comm", []byte("coworker-proxy"), 0)
	if err := selfconfine.Apply(selfconfine.Need{Read: readable(), DataBytes: dataBytes, GoBytes: goBytes, Descriptor: descriptors}); err != nil {
		return err
	}
	o := netproxy.Options{Control: line, Dialer: dial.System(), Original: transparent.OriginalDestination, Random: rand.Reader}
	if o.Proxy, err = sockets.listeners(control.FDProxy4, control.FDProxy6); err != nil {
		return err
	}
	if o.Transparent, err = sockets.listeners(control.FDTransparent4, control.FDTransparent6); err != nil {
		return err
	}
	if err := sockets.names(&o); err != nil {
		return err
	}
	return netproxy.Run(context.Background(), o)
}

// readable is what resolving and verifying take; Go's own resolver is in use, so no library is loaded.
func readable() []string {
	out := []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", "/etc/ssl", "/etc/pki", "/etc/ca-certificates",
		"/run/systemd/resolve", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/lib/ssl", "/usr/share/pki", "/proc/sys/net", "/dev/null",
	}
	// A resolver that manages resolv.conf replaces the file, so its folder is needed where that is one of its own.
	if file, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && filepath.Dir(file) != "/etc" {
		out = append(out, filepath.Dir(file))
	}
	if f := os.Getenv("SSL_CERT_FILE"); f != "" {
		out = append(out, f)
	}
	return append(out, filepath.SplitList(os.Getenv("SSL_CERT_DIR"))...)
}

// inherited takes a socket over from the supervisor.
func inherited(fd int, name string) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s): %w", fd, name, err)
	}
	return c, nil
}

// given says which of the descriptors came from the supervisor. It is asked before anything is opened, because what is
// opened gets the numbers that are free; what the Go runtime opened before is no socket.
type given map[int]bool

func present() given {
	out := given{}
	for fd := control.FDControl; fd <= control.FDNameTCP6; fd++ {
		if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err == nil {
			syscall.CloseOnExec(fd)
			out[fd] = true
		}
	}
	return out
}

// listeners takes the listener for IPv4, and the one for IPv6 if it is there.
func (g given) listeners(four, six int) ([]*net.TCPListener, error) {
	l, err := listener(four)
	if err != nil {
		return nil, err
	}
	out := []*net.TCPListener{l}
	if !g[six] {
		return out, nil
	}
	if l, err = listener(six); err != nil {
		return nil, err
	}
	return append(out, l), nil
}

// names takes the sockets of the resolver inside.
func (g given) names(o *netproxy.Options) error {
	tcp, err := g.listeners(control.FDNameTCP4, control.FDNameTCP6)
	if err != nil {
		return err
	}
	for _, l := range tcp {
		o.NameTCP = append(o.NameTCP, l)
	}
	for _, fd := range []int{control.FDNameUDP4, control.FDNameUDP6}[:len(tcp)] {
		f := os.NewFile(uintptr(fd), "names")
		p, err := net.FilePacketConn(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("descriptor %d is no packet socket: %w", fd, err)
		}
		o.NameUDP = append(o.NameUDP, p)
	}
	return nil
}

func listener(fd int) (*net.TCPListener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no listener: %w", fd, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("descriptor %d listens on %s, not on TCP", fd, l.Addr().Network()), l.Close())
	}
	return tcp, nil
}
