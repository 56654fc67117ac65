package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// streams copy between a command inside and its caller. The pipes are made here: the kernel's
// pipe buffers are the only buffering, so a caller that does not read stops the command, and
// nothing grows.
type streams struct {
	terminal *Terminal
	copies   []func() // each runs in a goroutine of its own until its pipe ends
	stop     *os.File // closing it ends the copy from the caller's stdin
	wake     *os.File
	toChild  *os.File    // written to by copyIn, which closes it
	hold     *sync.Mutex // held while somebody else reads the caller's input; nil: nobody does
	outputs  []*os.File
	in       sync.WaitGroup
	out      sync.WaitGroup
}

// drain bounds how long output is read after the command itself has ended, when a process that it
// left behind still holds the pipe.
const drain = 100 * time.Millisecond

// newPipeStreams makes the pipes of a command and returns the ends that go inside.
func newPipeStreams(c Command, id enforce.Identity) (_ *streams, inside []*os.File, err error) {
	st := &streams{}
	var mine []*os.File
	defer func() {
		if err != nil {
			for _, f := range append(mine, inside...) {
				f.Close()
			}
		}
	}()
	stdin, toChild, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("pipe for standard input: %w", err)
	}
	inside, mine = append(inside, stdin), append(mine, toChild)
	if st.wake, st.stop, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("pipe to end standard input: %w", err)
	}
	mine = append(mine, st.wake, st.stop)
	st.toChild = toChild
	st.copies = append(st.copies, func() { st.copyIn(c.Stdin, toChild) })
	for _, w := range []io.Writer{c.Stdout, c.Stderr} {
		fromChild, child, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("pipe for output: %w", err)
		}
		inside, mine = append(inside, child), append(mine, fromChild)
		st.outputs = append(st.outputs, fromChild)
		st.copies = append(st.copies, func() { st.copyOut(w, fromChild) })
	}
	return st, inside, giveFiles(inside, id)
}

// giveFiles hands pipes to the session's owner when root runs it for somebody else: a program
// that opens /dev/stdout again needs the right to.
func giveFiles(files []*os.File, id enforce.Identity) error {
	if os.Geteuid() != 0 || id.UID == 0 {
		return nil
	}
	for _, f := range files {
		if err := f.Chown(id.UID, id.GID); err != nil {
			return fmt.Errorf("give a pipe to its owner: %w", err)
		}
	}
	return nil
}

// start begins to copy; the inside ends are with the cell by now.
func (st *streams) start() {
	for i, c := range st.copies {
		if i == 0 {
			st.in.Go(c)
			continue
		}
		st.out.Go(c)
	}
}

// copyIn feeds the command. It looks before it reads, so that it can be ended while the caller's
// input has nothing to say, and so that it takes nothing that it does not deliver.
func (st *streams) copyIn(from, to *os.File) {
	defer to.Close()
	if from == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		if !waitReadable(from, st.wake) {
			return
		}
		n, err := st.readIn(from, buf)
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				return // the command closed its input or ended
			}
		}
		if err != nil {
			return
		}
	}
}

// readIn reads what is there, unless a question to the person has taken it meanwhile.
func (st *streams) readIn(from *os.File, buf []byte) (int, error) {
	if st.hold != nil {
		st.hold.Lock()
		defer st.hold.Unlock()
		fds := []unix.PollFd{{Fd: int32(from.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); err == unix.EINTR || err == nil && n == 0 {
			return 0, nil // nothing to say yet; the caller waits again
		}
	}
	return from.Read(buf)
}

// waitReadable reports whether from has data or ended, false when wake ended first.
func waitReadable(from, wake *os.File) bool {
	for {
		fds := []unix.PollFd{
			{Fd: int32(from.Fd()), Events: unix.POLLIN},
			{Fd: int32(wake.Fd()), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		return err == nil && fds[1].Revents == 0
	}
}

func (st *streams) copyOut(to io.Writer, from *os.File) {
	defer from.Close()
	if to == nil {
		to = io.Discard
	}
	deliver(to, from)
}

// deliver copies until the end, or until the read deadline has passed and everything that was
// written by then is handed on. A caller that cannot be written to (a closed pipe) ends the copy;
// the command then gets SIGPIPE, as it would without a wall.
func deliver(to io.Writer, from *os.File) {
	if _, err := io.Copy(to, from); !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	// The time is up because a process that was left behind keeps the pipe open, or because the
	// caller reads slowly. What the command wrote is in the pipe by now: the caller gets all of it.
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	waiting := 0
	err = raw.Control(func(fd uintptr) {
		waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD; on an error 0 stays
	})
	if err == nil && from.SetReadDeadline(time.Time{}) == nil {
		io.CopyN(to, from, int64(waiting))
	}
}

// finish ends the copies: output is read to its end, or for a bounded time if something that was
// left behind keeps the pipe open.
func (st *streams) finish() {
	if st.stop != nil {
		st.stop.Close()
	}
	if st.toChild != nil {
		// A process that was left behind may hold the other end and never read.
		st.toChild.SetWriteDeadline(time.Now())
	}
	for _, f := range st.outputs {
		f.SetReadDeadline(time.Now().Add(drain))
	}
	st.in.Wait()
	st.out.Wait()
	if st.wake != nil {
		st.wake.Close()
	}
	if st.terminal != nil {
		st.terminal.restore()
	}
}

// newTerminalStreams waits for the cell's pty.
func newTerminalStreams(t *Terminal) *streams { return &streams{terminal: t} }

// attach connects the pty that came from the cell with the caller's terminal.
func (st *streams) attach(pty *os.File) error {
	defer pty.Close()
	var err error
	if st.wake, st.stop, err = os.Pipe(); err != nil {
		return fmt.Errorf("pipe to end terminal input: %w", err)
	}
	// Non-blocking before os.NewFile sees them, so that deadlines work on them.
	if err := unix.SetNonblock(int(pty.Fd()), true); err != nil {
		return fmt.Errorf("terminal of the command: %w", err)
	}
	master, err := dupFile(pty)
	if err != nil {
		return err
	}
	toChild, err := dupFile(pty)
	if err != nil {
		return errors.Join(err, master.Close())
	}
	if err := st.terminal.begin(master); err != nil {
		return errors.Join(err, master.Close(), toChild.Close())
	}
	st.outputs, st.toChild = []*os.File{master}, toChild
	t := st.terminal
	st.in.Go(func() { st.copyIn(t.In, toChild) })
	st.out.Go(func() {
		defer master.Close()
		deliver(t.filter(), master) // EIO when the last process has closed the other side
	})
	return nil
}

func dupFile(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
