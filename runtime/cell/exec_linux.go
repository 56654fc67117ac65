package cell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// startError is why a command could not be started; it becomes ExecFailed.
type startError struct {
	errno  syscall.Errno
	reason string
}

func (e *startError) Error() string { return e.reason }

func cannotStart(err error, format string, args ...any) error {
	errno := syscall.EIO
	errors.As(err, &errno)
	return &startError{errno: errno, reason: fmt.Sprintf(format, args...) + ": " + errno.Error()}
}

// exec starts a command and answers Started or ExecFailed.
func (s *server) exec(f *wire.Frame) error {
	var m wire.Exec
	if err := f.Decode(&m); err != nil {
		return err
	}
	want := 3
	if m.TTY {
		want = 0
	}
	if len(f.Files) != want {
		return fmt.Errorf("%w: Exec %d with %d descriptors, want %d", wire.ErrProtocol, m.ID, len(f.Files), want)
	}
	exists, n := s.table.running(m.ID)
	if exists {
		return fmt.Errorf("%w: Exec with id %d of a running command", wire.ErrProtocol, m.ID)
	}
	c := &command{id: m.ID}
	err := error(nil)
	if n >= s.table.max {
		err = cannotStart(syscall.EAGAIN, "%d commands are running", n)
	} else {
		err = s.start(c, &m, f.Files)
	}
	var failed *startError
	if errors.As(err, &failed) {
		return s.conn.Send(wire.TypeExecFailed, wire.ExecFailed{ID: m.ID, Errno: int(failed.errno), Reason: failed.reason})
	}
	if err != nil {
		return err
	}
	return s.sendStarted(c)
}

// sendStarted sends Started with a copy of the terminal's master: the reaper may close the
// original at any time, and its number may then belong to another file.
func (s *server) sendStarted(c *command) error {
	started := wire.Started{ID: c.id, Pid: c.pid}
	var err error
	if c.sendMaster != nil {
		err = s.conn.Send(wire.TypeStarted, started, c.sendMaster)
		c.sendMaster.Close()
	} else {
		err = s.conn.Send(wire.TypeStarted, started)
	}
	if err != nil {
		return err
	}
	s.table.announced(c)
	return nil
}

// start forks and executes the command of m.
func (s *server) start(c *command, m *wire.Exec, files []*os.File) error {
	if err := checkStrings(m); err != nil {
		return err
	}
	var stdio [3]uintptr
	for i, f := range files {
		stdio[i] = f.Fd()
	}
	if m.TTY {
		t, err := openTerminal(m.Rows, m.Cols)
		if err != nil {
			return err
		}
		defer t.slave.Close()
		stdio = [3]uintptr{t.slave.Fd(), t.slave.Fd(), t.slave.Fd()}
		c.master, c.sendMaster = t.master, t.copy
	}
	err := s.startPath(c, m, stdio[:])
	if err != nil && c.master != nil {
		c.master.Close()
		c.sendMaster.Close()
	}
	return err
}

// checkStrings refuses what execve(2) cannot express.
func checkStrings(m *wire.Exec) error {
	if len(m.Argv) == 0 || len(m.Argv[0]) == 0 {
		return cannotStart(syscall.ENOENT, "empty command")
	}
	for _, list := range [][][]byte{m.Argv, m.Env, {m.Dir}} {
		for _, s := range list {
			if bytes.IndexByte(s, 0) >= 0 {
				return cannotStart(syscall.EINVAL, "NUL byte in %q", clip(s))
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(string(m.Dir), &st); err != nil {
		return cannotStart(err, "working directory %q", clip(m.Dir))
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return cannotStart(syscall.ENOTDIR, "working directory %q", clip(m.Dir))
	}
	return nil
}

// clip keeps a reason short whatever the caller sent.
func clip(s []byte) []byte {
	const limit = 256
	if len(s) > limit {
		return s[:limit]
	}
	return s
}

// startPath tries the places where the command can be, as execvp(3) does with the PATH of the
// command's own environment: a candidate that is missing or refused is passed over, and a refusal
// is remembered because it says more than "not found".
func (s *server) startPath(c *command, m *wire.Exec, stdio []uintptr) error {
	name, dir := string(m.Argv[0]), string(m.Dir)
	argv, env := toStrings(m.Argv), toStrings(m.Env)
	var refused error
	for _, path := range candidates(name, env) {
		err := executable(dir, path)
		if err == nil {
			err = s.fork(c, path, argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: stdio, Sys: s.childAttr(m.TTY)})
		}
		switch {
		case err == nil:
			return nil
		case strings.Contains(name, "/"):
			return cannotStart(err, "execute %q", clip(m.Argv[0]))
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.EACCES):
			if refused == nil {
				refused = cannotStart(err, "execute %q", clip([]byte(path)))
			}
		default:
			return cannotStart(err, "execute %q", clip([]byte(path)))
		}
	}
	if refused != nil {
		return refused
	}
	return cannotStart(syscall.ENOENT, "find %q in PATH", clip(m.Argv[0]))
}

// candidates lists the files that a command name can mean.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/bin:/usr/bin" // what execvp(3) searches without PATH
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v // the first one counts, as in getenv(3)
			break
		}
	}
	dirs := strings.Split(path, ":")
	for i, d := range dirs {
		if d == "" {
			d = "." // POSIX: an empty prefix is the current directory
		}
		dirs[i] = d + "/" + name
	}
	return dirs
}

// executable tells beforehand what execve would most likely say, because asking costs a fork less.
func executable(dir, path string) error {
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES // as execve(2) says of folders, pipes and devices
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, 0)
}

// childAttr gives a command a session of its own, so that its process group can be signalled and
// no other command's terminal can become its own.
func (s *server) childAttr(tty bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: tty, Ctty: 0}
	if !s.ownNS {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}

// fork starts path. A text file without an interpreter line runs in a shell, as execvp(3) and
// every shell do; a binary of another format does not.
func (s *server) fork(c *command, path string, argv []string, attr *syscall.ProcAttr) error {
	err := s.table.start(c, func() (int, error) { return syscall.ForkExec(path, argv, attr) })
	if err != syscall.ENOEXEC || !isText(attr.Dir, path) {
		return err
	}
	script := path
	if strings.HasPrefix(script, "-") {
		script = "./" + script // not an option of the shell
	}
	argv = append([]string{"/bin/sh", script}, argv[1:]...)
	return s.table.start(c, func() (int, error) { return syscall.ForkExec("/bin/sh", argv, attr) })
}

// isText tells a script from a binary like bash does: no NUL byte at its beginning.
func isText(dir, path string) bool {
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var head [80]byte
	n, err := unix.Read(fd, head[:])
	return err == nil && bytes.IndexByte(head[:n], 0) < 0
}

func toStrings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// signal sends a signal to a command. One that has ended since is no error: the supervisor cannot
// know yet.
func (s *server) signal(f *wire.Frame) error {
	var m wire.Signal
	if err := f.Decode(&m); err != nil {
		return err
	}
	if m.Signal < 1 || m.Signal > maxSignal {
		return fmt.Errorf("%w: Signal with number %d", wire.ErrProtocol, m.Signal)
	}
	return s.table.withLive(m.ID, func(c *command) error {
		for _, group := range c.groups() {
			// No answer to give: the group may be gone by now (ESRCH), or its own processes
			// have used up the room for real-time signals (EAGAIN).
			_ = unix.Kill(-group, syscall.Signal(m.Signal))
		}
		return nil
	})
}

// resize sets the window size; the kernel sends SIGWINCH.
func (s *server) resize(f *wire.Frame) error {
	var m wire.Resize
	if err := f.Decode(&m); err != nil {
		return err
	}
	return s.table.withLive(m.ID, func(c *command) error {
		if c.master == nil {
			return fmt.Errorf("%w: Resize of command %d, which has no terminal", wire.ErrProtocol, m.ID)
		}
		return setWindowSize(c.master, m.Rows, m.Cols)
	})
}
