package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"coworker/integration/netns"
)

// Name is what the host's hosts file calls Address, which is at the far end (RFC 5737 sets the range apart for examples).
const (
	Name    = "origin.test"
	Address = "203.0.113.9"
	Range   = "203.0.113.0/24"
)

// Network is two namespaces and a cable between them.
type Network struct {
	near, far *os.File
	hosts     string // file
}

var (
	nearLines = []string{"link set lo up", "link set near up", "address add 203.0.113.1/24 dev near"}
	farLines  = []string{"link set lo up", "link set far up", "address add " + Address + "/24 dev far"}
)

// New makes a network; dir is a folder for its hosts file. The caller closes it.
func New(dir string) (*Network, error) {
	n := &Network{hosts: filepath.Join(dir, "hosts")}
	if err := os.WriteFile(n.hosts, []byte("127.0.0.1 localhost\n"+Address+" "+Name+"\n"), 0o644); err != nil {
		return nil, err
	}
	var err error
	if n.near, err = netns.New(); err == nil {
		n.far, err = netns.New()
	}
	if err == nil {
		cable := fmt.Sprintf("link add far type veth peer name near netns /proc/%d/fd/%d", os.Getpid(), n.near.Fd())
		err = netns.In(n.far, func() error { return netns.IP(append([]string{cable}, farLines...)...) })
	}
	if err == nil {
		err = netns.In(n.near, func() error { return netns.IP(nearLines...) })
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close forgets the namespaces.
func (n *Network) Close() error {
	var err error
	for _, f := range []*os.File{n.near, n.far} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Far runs f at the far end: sockets and processes that it makes belong there.
func (n *Network) Far(f func() error) error { return netns.In(n.far, f) }

// Near runs f as a program of the host: with its network and its hosts file.
func (n *Network) Near(f func() error) error {
	return netns.In(n.near, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		if err := unix.Mount(n.hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over /etc/hosts: %w", err)
		}
		return f()
	})
}
