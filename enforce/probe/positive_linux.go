package probe

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// positive lists what must work: a cell in which nothing works would pass every other attempt.
func positive(s Setup) []attempt {
	add := func(name string, wall enforce.Wall, run func(*battery) result) attempt {
		return attempt{name: name, wall: wall, want: enforce.Works, run: run}
	}
	file := func(name string, wall enforce.Wall, path string, flags int) attempt {
		return add(name, wall, func(*battery) result { return judgeWorks(path, openClose(path, flags)) })
	}
	all := []attempt{
		add("workspace", enforce.FSRead, readWorkspace),
		file("shell", enforce.FSRead, "/bin/sh", unix.O_RDONLY),
		file("tmp", enforce.FSWrite, "/tmp", tmpfile),
		file("home", enforce.FSWrite, s.Spec.PrivateHome(s.Backend), tmpfile),
		file("dev-null", enforce.FSWrite, "/dev/null", unix.O_WRONLY),
		file("random", enforce.FSRead, "/dev/urandom", unix.O_RDONLY),
		file("proc-self", enforce.Proc, "/proc/self/status", unix.O_RDONLY),
		add("terminal", enforce.Kernel, openTerminal),
		add("socket-pair", enforce.NetLocal, makePair),
	}
	if !s.noScratch() {
		all = append(all, add("scratch", enforce.FSWrite, func(*battery) result {
			_, err := scratch(s.Targets.Scratch).file(weapon)
			return judgeWorks("a file in the scratch repository", err)
		}))
	}
	if len(s.Spec.Trees) > 0 && s.Spec.Trees[0].Writable {
		all = append(all, add("workspace", enforce.FSWrite, writeWorkspace))
	}
	if s.Backend != enforce.Bare { // there the loopback is the host's, and own servers do not work
		all = append(all, add("own-server", enforce.NetLocal, ownServer))
	}
	return all
}

func readWorkspace(b *battery) result {
	dir := b.Spec.Workspace
	f, err := os.Open(dir)
	if err != nil {
		return judgeWorks(dir, err)
	}
	defer f.Close()
	if _, err = f.Readdirnames(1); errors.Is(err, io.EOF) { // an empty workspace
		err = nil
	}
	return judgeWorks(dir, err)
}

// writeWorkspace creates a file without a name. Some file systems have none of these (NFS, 9p):
// there the kernel is asked for the right to write instead, which a read-only mount refuses too.
func writeWorkspace(b *battery) result {
	dir := b.Spec.Workspace
	err := openClose(dir, tmpfile)
	if err == unix.EOPNOTSUPP || err == unix.EISDIR {
		err = unix.Access(dir, unix.W_OK)
	}
	return judgeWorks(dir, err)
}

func openTerminal(*battery) result {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judgeWorks("/dev/ptmx", err)
	}
	defer unix.Close(m)
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return judgeWorks("unlock a terminal", err)
	}
	n, err := unix.IoctlGetUint32(m, unix.TIOCGPTN)
	if err != nil {
		return judgeWorks("number of a terminal", err)
	}
	name := "/dev/pts/" + strconv.Itoa(int(n))
	return judgeWorks(name, openClose(name, unix.O_RDWR|unix.O_NOCTTY))
}

func makePair(*battery) result {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
	return judgeWorks("a pair of sockets", err)
}

// ownServer listens on the cell's loopback and connects to itself.
func ownServer(*battery) result {
	server, err := inet(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return judgeWorks("socket", err)
	}
	defer unix.Close(server)
	if err := unix.Bind(server, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return judgeWorks("bind to 127.0.0.1", err)
	}
	if err := unix.Listen(server, 1); err != nil {
		return judgeWorks("listen on 127.0.0.1", err)
	}
	sa, err := unix.Getsockname(server)
	if err != nil {
		return judgeWorks("address of the server", err)
	}
	client, err := inet(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return judgeWorks("socket", err)
	}
	defer unix.Close(client)
	if err = unix.Connect(client, sa); err == unix.EINPROGRESS {
		err = awaitConnect(client)
	}
	if err != nil {
		return judgeWorks("connect to an own server", err)
	}
	return acceptOne(server)
}

func acceptOne(server int) result {
	if n, err := poll(server, unix.POLLIN); err != nil || n == 0 {
		return judgeWorks("wait for an own connection", unix.ETIMEDOUT)
	}
	fd, _, err := unix.Accept4(server, unix.SOCK_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return judgeWorks("an own server", err)
}
