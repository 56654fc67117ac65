package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// attempts are made in the tree, in this order. In the ones with "ok" at the end of their name nothing may be refused.
type attempt struct {
	name string
	try  func() error
}

var attempts = []attempt{
	{"create .mcp.json below", create("src/.mcp.json")},
	{"create in another case", create("src/.MCP.json")},
	{"create with a stream suffix", create("src/.mcp.json:x")},
	{"create with a sign that is left out", create("src/.mcp\u200b.json")},
	{"create .git/commondir", create(".git/commondir")},
	{"create .git file with O_TMPFILE", tmpfile("src/.envrc")},
	{"mkdir .claude", func() error { return unix.Mkdir(".claude", 0o755) }},
	{"mknod .envrc", func() error { return unix.Mknod(".envrc", unix.S_IFIFO|0o644, 0) }},
	{"symlink .envrc", func() error { return unix.Symlink("README", ".envrc") }},
	{"symlink in place of .vscode", func() error { return unix.Symlink("src", ".vscode") }},
	{"link to .envrc", func() error { return unix.Link("README", ".envrc") }},
	{"link of a protected file", func() error { return unix.Link(".git/config", "linked") }},
	{"rename onto .mcp.json", func() error { return renameNew("README", ".mcp.json") }},
	{"rename to an absent name", func() error { return renameNew("README", "src/.mcp.json") }},
	{"rename away", func() error { return unix.Rename(".mcp.json", "away") }},
	{"rename .git", func() error { return unix.Rename(".git", "g") }},
	{"exchange .git", func() error { return unix.Renameat2(unix.AT_FDCWD, "src", unix.AT_FDCWD, ".git", unix.RENAME_EXCHANGE) }},
	{"rename a folder to .git", func() error { return unix.Rename("gitlike", "src/.git") }},
	{"rename a folder to .vscode", func() error { return unix.Rename("gitlike", "src/.vscode") }},
	{"unlink .mcp.json", func() error { return unix.Unlink(".mcp.json") }},
	{"rmdir .git/hooks", func() error { return unix.Rmdir(".git/hooks") }},
	{"create a hook", create(".git/hooks/post-merge")},
	{"write config", write(".git/config", unix.O_WRONLY)},
	{"append to config", write(".git/config", unix.O_WRONLY|unix.O_APPEND)},
	{"open config with O_TRUNC", write(".git/config", unix.O_RDONLY|unix.O_TRUNC)},
	{"write config through /proc", throughProc(".git/config", unix.O_WRONLY)},
	{"truncate config", func() error { return unix.Truncate(".git/config", 1) }},
	{"chmod config", func() error { return unix.Chmod(".git/config", 0o777) }},
	{"chown config", func() error { return unix.Lchown(".git/config", 1, 1) }},
	{"times of config", func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, ".git/config", nil, 0) }},
	{"attribute of config", func() error { return unix.Setxattr(".git/config", "trusted.x", []byte("1"), 0) }},
	{"hook in a new repository", sequence(mkdirs("n/.git/hooks"), create("n/.git/hooks/pre-commit"))},
	{"sample renamed to a hook", sequence(mkdirs("n2/.git/hooks"), create("n2/.git/hooks/a.sample"), func() error { return unix.Rename("n2/.git/hooks/a.sample", "n2/.git/hooks/a") })},
	{"deep path", deep},
	{"read hidden", write(".env", unix.O_RDONLY)},
	{"read hidden by a hard link", write("../alias", unix.O_RDONLY)},
	{"read hidden through /proc", throughProc(".env", unix.O_RDONLY)},
	{"read in a hidden folder", write("private/key", unix.O_RDONLY)},
	{"list a hidden folder", write("private", unix.O_RDONLY|unix.O_DIRECTORY)},
	{"truncate hidden", func() error { return unix.Truncate(".env", 0) }},
	{"chmod hidden", func() error { return unix.Chmod(".env", 0o666) }},
	{"unlink hidden", func() error { return unix.Unlink(".env") }},
	{"execute hidden", func() error { return unix.Exec(".env", []string{"x"}, nil) }},
	{"vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{"packet socket", socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{"netlink audit", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)},
	{"raw socket", socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{"abstract socket of the host", dial("unix", "@guestguard")},
	{"path socket of the host", dial("unix", "/root/socket")},
	{"datagram to the host", dial("unixgram", "/root/datagrams")},

	{"edit ok", sequence(create("src/b"), write("src/b", unix.O_RDWR), func() error { return os.Rename("src/b", "src/a") })},
	{"folders ok", sequence(mkdirs("node_modules/a/b/c/d/e"), create("node_modules/a/b/c/d/e/f"), func() error { return os.Rename("node_modules", "nm") }, func() error { return os.RemoveAll("nm") })},
	{"git index ok", sequence(create(".git/index.lock"), func() error { return os.Rename(".git/index.lock", ".git/index") })},
	{"read config ok", write(".git/config", unix.O_RDONLY)},
	{"read .mcp.json ok", write(".mcp.json", unix.O_RDONLY)},
	{"lifted ok", sequence(mkdirs("lifted"), create("lifted/.mcp.json"))},
	{"new repository ok", sequence(mkdirs("n3/.git/hooks"), create("n3/.git/config"), create("n3/.git/hooks/a.sample"), func() error { return os.RemoveAll("n3") })},
	{"settings beside tasks ok", sequence(mkdirs(".vscode"), create(".vscode/extensions.json"))},
	{"outside of the tree ok", sequence(create("/tmp/.mcp.json"), func() error { return os.Remove("/tmp/.mcp.json") })},
	{"udp socket ok", socket(unix.AF_INET, unix.SOCK_DGRAM, 0)},
	{"route socket ok", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)},
}

func attack() {
	for _, a := range attempts {
		a.say("", a.try())
	}
	if len(os.Args) > 2 {
		attempt{name: "own sockets ok"}.say("", ownSockets(os.Args[2]))
	}
}

func (a attempt) say(where string, err error) {
	if err != nil {
		fmt.Printf("%s%s: %v\n", where, a.name, err)
		return
	}
	fmt.Printf("%s%s: worked\n", where, a.name)
}

// refuse makes refused attempts as fast as it can.
func refuse() {
	for range 5000 {
		create("src/.mcp.json")()
	}
}

// ownSockets talks over a socket of the cell's namespace.
func ownSockets(keeper string) error {
	runtime.LockOSThread()
	ns, err := os.Open("/proc/" + keeper + "/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(talk(unix.SOCK_STREAM, "@own"), talk(unix.SOCK_STREAM, "own-socket"), talk(unix.SOCK_DGRAM, "@own-datagrams"))
}

func talk(kind int, name string) error {
	addr := &unix.SockaddrUnix{Name: name}
	server, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(server)
	if err := unix.Bind(server, addr); err != nil {
		return err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(server, 1); err != nil {
			return err
		}
	}
	client, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	return unix.Connect(client, addr)
}

func sequence(steps ...func() error) func() error {
	return func() error {
		for i, s := range steps {
			if err := s(); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		return nil
	}
}

func create(p string) func() error { return write(p, unix.O_CREAT|unix.O_WRONLY) }

func mkdirs(p string) func() error { return func() error { return os.MkdirAll(p, 0o755) } }

func write(p string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

func throughProc(p string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return write("/proc/self/fd/"+strconv.Itoa(fd), flags)()
	}
}

func tmpfile(p string) func() error {
	return func() error {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
	}
}

func renameNew(like, to string) error {
	data, err := os.ReadFile(like)
	if err == nil {
		err = os.WriteFile("weapon", data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return unix.Rename("weapon", to)
}

// deep makes a file 120 folders below the tree, where the programs do not look any more.
func deep() error {
	at := strings.Repeat("d/", 119)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return os.RemoveAll("d")
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

func dial(network, addr string) func() error {
	return func() error {
		c, err := net.DialTimeout(network, addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// loops measures calls in the tree.
func loops() error {
	const n = 1000
	at := "src/deeper/and/deeper"
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	file := filepath.Join(at, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	var st unix.Stat_t
	for _, l := range []struct {
		name string
		f    func() error
	}{
		{"stat", func() error { return unix.Stat(file, &st) }},
		{"open", write(file, unix.O_RDONLY)},
		{"open for writing", write(file, unix.O_WRONLY)},
		{"create and unlink", sequence(create(file+"2"), func() error { return unix.Unlink(file + "2") })},
	} {
		best := time.Duration(1 << 62)
		for range 3 {
			start := time.Now()
			for range n {
				if err := l.f(); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
			}
			best = min(best, time.Since(start)/n)
		}
		fmt.Printf("%s: %d ns\n", l.name, best.Nanoseconds())
	}
	return nil
}
