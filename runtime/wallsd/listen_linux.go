package wallsd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Activated returns the socket that systemd passed, or nil if there is none (sd_listen_fds(3)).
func Activated(getenv func(string) string) (*net.UnixListener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passed %.20q sockets, one is served", n)
	}
	const first = 3
	unix.CloseOnExec(first)
	f := os.NewFile(first, "wallsd.sock")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take the socket over from systemd: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != "unixpacket" {
		return nil, errors.Join(fmt.Errorf("systemd passed a socket of %s, want ListenSequentialPacket=", l.Addr().Network()), l.Close())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}

// Listen makes the socket. Everybody may connect: who is served is decided by what the kernel says about them. A socket that
// nobody serves any more is replaced.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	conn, err := net.Dial("unixpacket", path)
	switch {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("another helper serves %q", path), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove a socket that nobody serves: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("look for another helper: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
