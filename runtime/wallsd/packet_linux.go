package wallsd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// packets sends and receives frames, each a packet of its own (SOCK_SEQPACKET): no length to believe, no half frame to wait for.
type packets struct {
	conn *net.UnixConn
	buf  []byte // of receive, which one goroutine calls
	oob  []byte

	write sync.Mutex
}

// maxFiles is how many descriptors are taken off a packet; the kernel drops what is above.
const maxFiles = 4

func newPackets(c *net.UnixConn) *packets {
	return &packets{conn: c, buf: make([]byte, maxFrame+1), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// receive reads one packet and the descriptors in it, which the caller owns. The bytes are valid until the next call.
func (p *packets) receive() ([]byte, []int, error) {
	n, oobn, flags, _, err := p.conn.ReadMsgUnix(p.buf, p.oob)
	if err != nil {
		return nil, nil, err
	}
	files := descriptors(p.oob[:oobn])
	switch {
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > maxFrame:
		closeAll(files)
		return nil, nil, fmt.Errorf("%w: a packet of more than %d bytes or %d descriptors", errProtocol, maxFrame, maxFiles)
	case n == 0: // an empty packet looks like the end, and is meant as little
		closeAll(files)
		return nil, nil, io.EOF
	}
	return p.buf[:n], files, nil
}

// descriptors takes what arrived, whether or not the rest of the ancillary data makes sense.
func descriptors(oob []byte) []int {
	var out []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if files, err := unix.ParseUnixRights(&m); err == nil {
			out = append(out, files...)
		}
	}
	return out
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// send waits until the packet is taken, at most for limit.
func (p *packets) send(v any, limit time.Duration, files ...int) error {
	data, err := encodeFrame(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	p.write.Lock()
	defer p.write.Unlock()
	if err := p.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, _, err = p.conn.WriteMsgUnix(data, oob, nil)
	return err
}

// errFull means that the other side does not read.
var errFull = errors.New("the other side does not read")

// sendNow sends a packet if there is room for it in the socket, which is all the queue that there is.
func (p *packets) sendNow(v any) error {
	data, err := encodeFrame(v)
	if err != nil {
		return err
	}
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		sendErr = unix.Sendmsg(int(fd), data, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if errors.Is(sendErr, unix.EAGAIN) || errors.Is(sendErr, unix.ENOBUFS) {
		return errFull
	}
	return errors.Join(err, sendErr)
}

func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
