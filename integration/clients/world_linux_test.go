package clients

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
	"coworker/integration/netns"
)

// Two hosts of the world. Both run every service; only the first one is ever allowed.
const (
	allowed  = "service.corp.example"
	existing = "other.corp.example"
	inRange  = "=203.0.113.0/24"
)

// hostsFile is what the machine knows about names. There is no name server: the address in resolvFile is nobody's.
const (
	hostsFile = "127.0.0.1 localhost\n::1 localhost\n203.0.113.10 " + allowed + "\n203.0.113.20 " + existing + "\n"
	// One second for a name that is in no file, instead of the ten of resolv.conf(5).
	resolvFile = "nameserver 203.0.113.99\noptions timeout:1 attempts:1\n"
)

// world is a machine inside this one: a network and a mount namespace of its own, in which coworker and the clients run. The
// servers are on another machine, a second network namespace: addresses of the own machine are refused by coworker.
type world struct {
	net, mnt, far *os.File
	dir           string
	ca            *authority
	login         login
}

// newWorld makes one and starts its servers. The users who will run clients there must be able to read dir.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: testuser.User{UID: os.Geteuid()}.Dir(t)}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.ca = newAuthority(t)
	w.certificates(t)
	w.write(t, "hosts", hostsFile)
	w.write(t, "resolv.conf", resolvFile)
	var err error
	if w.far, err = netns.New(); err == nil {
		err = netns.OnThread(w.enter)
	}
	if err != nil {
		t.Fatalf("make the namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.net.Close(), w.mnt.Close(), w.far.Close()); err != nil {
			t.Error(err)
		}
	})
	w.serveWeb(t)
	w.serveSSH(t)
	w.servePostgres(t)
	return w
}

func (w *world) write(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(w.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cable joins the calling thread's network with that of the servers by a pair of devices.
func (w *world) cable() error {
	far := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.far.Fd())
	err := netns.IP("link set lo up", "link add near type veth peer name far", "link set far netns "+far, "address add 203.0.113.1/24 dev near",
		"link set near up", "route add default via 203.0.113.10")
	if err != nil {
		return err
	}
	return netns.In(w.far, func() error {
		return netns.IP("address add 203.0.113.10/24 dev far", "address add 203.0.113.20/24 dev far", "link set far up", "link set lo up")
	})
}

// enter makes the namespaces of the calling thread. Nothing of it reaches the machine: the mounts are private, and
// the interface goes with the namespace.
func (w *world) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for from, to := range map[string]string{"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf", "certs": "/etc/ssl/certs"} {
		if err := unix.Mount(filepath.Join(w.dir, from), to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("put a file over %s: %w", to, err)
		}
	}
	if err := w.cable(); err != nil {
		return err
	}
	var err, err2 error
	w.net, err = os.Open("/proc/thread-self/ns/net")
	w.mnt, err2 = os.Open("/proc/thread-self/ns/mnt")
	return errors.Join(err, err2)
}

// inside runs f on the machine of the clients: processes that it starts belong there.
func (w *world) inside(f func() error) error {
	return netns.OnThread(func() error {
		// setns into a mount namespace needs a file system context of the thread's own (setns(2)).
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := errors.Join(unix.Setns(int(w.net.Fd()), unix.CLONE_NEWNET), unix.Setns(int(w.mnt.Fd()), unix.CLONE_NEWNS)); err != nil {
			return err
		}
		return f()
	})
}

// listen opens a port on every address of the servers.
func (w *world) listen(t *testing.T, port string) net.Listener {
	t.Helper()
	var l net.Listener
	err := netns.In(w.far, func() (err error) {
		l, err = net.Listen("tcp4", ":"+port)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return l
}

// certificates copies the machine's trusted authorities and adds the test's own, as a company's machine has it.
func (w *world) certificates(t *testing.T) {
	t.Helper()
	const system = "/etc/ssl/certs"
	to := filepath.Join(w.dir, "certs")
	err := filepath.WalkDir(system, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(system, p)
		if err != nil {
			return err
		}
		return copyEntry(p, filepath.Join(to, rel), d)
	})
	if err != nil {
		t.Fatalf("copy the certificates: %v", err)
	}
	bundle := filepath.Join(to, "ca-certificates.crt")
	content, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bundle, append(content, w.ca.pem...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyEntry(from, to string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return os.MkdirAll(to, 0o755)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !d.Type().IsRegular():
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
