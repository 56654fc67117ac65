package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bounds of a frame. A body holds at most one command line and its environment, which the
// kernel bounds to 2 MiB or a quarter of the stack limit (execve(2)); base64 in JSON adds a third.
const (
	MaxBody  = 8 << 20
	MaxFiles = 8

	headerSize = 8 // length uint32, type uint16, files uint16, all little endian
)

// ErrProtocol marks a frame that breaks the rules; the session must end.
var ErrProtocol = errors.New("wire protocol violation")

// Frame is one message as it arrived. The receiver owns Files and closes them.
type Frame struct {
	Type  Type
	Body  []byte
	Files []*os.File
}

// Close closes the descriptors that came with the frame.
func (f *Frame) Close() {
	for _, file := range f.Files {
		file.Close()
	}
	f.Files = nil
}

// Decode reads the body into v; unknown fields are a protocol violation.
func (f *Frame) Decode(v any) error {
	if err := strictUnmarshal(f.Body, v); err != nil {
		return fmt.Errorf("%w: body of %s: %v", ErrProtocol, f.Type, err)
	}
	return nil
}

// Conn is one end of a wire. Send may be called from several goroutines; Receive from one. A
// full socket buffer blocks Send: that is the back-pressure.
type Conn struct {
	file   *os.File
	closed atomic.Bool

	sendMu sync.Mutex // held for a whole frame, so frames do not interleave
}

// NewConn takes ownership of a stream socket. The descriptor stays blocking or not as it is.
func NewConn(file *os.File) *Conn { return &Conn{file: file} }

// Pair makes a connected pair: a Conn for this process and a file for the child to inherit.
func Pair(name string) (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair for %s: %w", name, err)
	}
	return NewConn(os.NewFile(uintptr(fds[0]), name)), os.NewFile(uintptr(fds[1]), name+"-peer"), nil
}

// Inherited wraps a descriptor that this process was started with.
func Inherited(fd uintptr, name string) (*Conn, error) {
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return nil, fmt.Errorf("inherited wire %s on descriptor %d: %w", name, fd, err)
	}
	unix.CloseOnExec(int(fd))
	return NewConn(os.NewFile(fd, name)), nil
}

// Close ends the connection; a blocked Send or Receive returns an error that is os.ErrClosed.
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.file.Close()
}

// cause gives the raw calls the error of the others: package os does not translate theirs.
func (c *Conn) cause(err error) error {
	if c.closed.Load() && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return os.ErrClosed
	}
	return err
}

// Send writes one frame. The caller keeps ownership of files.
func (c *Conn) Send(t Type, v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("wire encode %s: %w", t, err)
	}
	if len(body) > MaxBody || len(files) > MaxFiles {
		return fmt.Errorf("wire send %s: body of %d bytes and %d descriptors, at most %d and %d", t, len(body), len(files), MaxBody, MaxFiles)
	}
	frame := make([]byte, headerSize+len(body))
	binary.LittleEndian.PutUint32(frame, uint32(len(body)))
	binary.LittleEndian.PutUint16(frame[4:], uint16(t))
	binary.LittleEndian.PutUint16(frame[6:], uint16(len(files)))
	copy(frame[headerSize:], body)

	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if len(files) > 0 {
		n, err := c.sendRights(frame, files)
		if err != nil {
			return fmt.Errorf("wire send %s: %w", t, c.cause(err))
		}
		frame = frame[n:]
	}
	if _, err := c.file.Write(frame); err != nil {
		return fmt.Errorf("wire send %s: %w", t, err)
	}
	return nil
}

// sendRights sends the beginning of a frame with its descriptors attached to the first byte.
func (c *Conn) sendRights(frame []byte, files []*os.File) (int, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	oob := unix.UnixRights(fds...)
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		for {
			n, sendErr = unix.SendmsgN(int(fd), frame, oob, nil, unix.MSG_NOSIGNAL)
			if sendErr != unix.EINTR {
				return sendErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = sendErr
	}
	return n, err
}

// Receive reads one frame. io.EOF means the other end closed between frames.
func (c *Conn) Receive() (*Frame, error) {
	header := make([]byte, headerSize)
	n, files, err := c.receiveRights(header)
	frame := &Frame{Files: files}
	if err != nil {
		frame.Close()
		return nil, err
	}
	if n == 0 {
		frame.Close()
		return nil, io.EOF
	}
	if _, err := io.ReadFull(c.file, header[n:]); err != nil {
		frame.Close()
		return nil, fmt.Errorf("%w: header cut short: %v", ErrProtocol, err)
	}
	size := binary.LittleEndian.Uint32(header)
	frame.Type = Type(binary.LittleEndian.Uint16(header[4:]))
	want := int(binary.LittleEndian.Uint16(header[6:]))
	if size > MaxBody || want != len(files) || !frame.Type.known() {
		frame.Close()
		return nil, fmt.Errorf("%w: type %d, body of %d bytes, %d descriptors announced and %d received", ErrProtocol, frame.Type, size, want, len(files))
	}
	frame.Body = make([]byte, size)
	if _, err := io.ReadFull(c.file, frame.Body); err != nil {
		frame.Close()
		return nil, fmt.Errorf("%w: body of %s cut short: %v", ErrProtocol, frame.Type, err)
	}
	return frame, nil
}

// receiveRights reads the first bytes of a header with any descriptors. Descriptors attached to
// later bytes are dropped by the kernel because plain reads have no room for them (unix(7)).
func (c *Conn) receiveRights(buf []byte) (int, []*os.File, error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, nil, fmt.Errorf("wire receive: %w", c.cause(err))
	}
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	var n, oobn, flags int
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			if recvErr != unix.EINTR {
				return recvErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = recvErr
	}
	if err != nil {
		return 0, nil, fmt.Errorf("wire receive: %w", c.cause(err))
	}
	files, err := parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: more than %d descriptors", ErrProtocol, MaxFiles)
	}
	return n, files, err
}

// parseRights returns every descriptor it finds even if it also returns an error: the kernel has
// installed them all, and the caller must close them.
func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %v", ErrProtocol, err)
	}
	var files []*os.File
	var bad error
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			bad = fmt.Errorf("%w: control message: %v", ErrProtocol, err)
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "wire-descriptor"))
		}
	}
	return files, bad
}
