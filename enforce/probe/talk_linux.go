package probe

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// talkTime bounds all conversations with the proxy together. A proxy that is well answers in less than a millisecond.
const talkTime = 2 * time.Second

// maxTalk bounds what is read from the proxy.
const maxTalk = 4 << 10

// errSilent: the other end neither answered nor closed in time.
var errSilent = errors.New("no answer in time")

// talk is one connection to a listener of the proxy. Its time is over for all reads together, so that an end that sends
// one byte now and then gains nothing.
type talk struct {
	fd    int
	until time.Time
	got   []byte // what was read and not taken yet

	kind  int    // of the socket, and
	asked []byte // the question, in a talk with a resolver
}

// dial connects a stream; a datagram socket gets its peer.
func dial(kind int, sa unix.Sockaddr, until time.Time) (*talk, error) {
	family := unix.AF_INET
	if _, six := sa.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := inet(family, kind, 0)
	if err != nil {
		return nil, err
	}
	t := &talk{fd: fd, until: until}
	err = unix.Connect(fd, sa)
	if err == unix.EINPROGRESS {
		if err = t.wait(unix.POLLOUT); err == nil {
			err = socketError(fd)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return t, nil
}

func (t *talk) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// wait waits for the socket until the time of the conversation is over. What is there already is there at any time.
func (t *talk) wait(events int16) error {
	for {
		left := max(time.Until(t.until), 0)
		fds := []unix.PollFd{{Fd: int32(t.fd), Events: events}}
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		case left == 0:
			return errSilent
		}
	}
}

// say sends all of the data, which is short enough for any send buffer.
func (t *talk) say(data []byte) error {
	n, err := unix.Write(t.fd, data)
	if err == nil && n != len(data) {
		return fmt.Errorf("%d of %d bytes were taken", n, len(data))
	}
	return err
}

// more reads once. done: the other end closed, or the bound is reached.
func (t *talk) more() (done bool, err error) {
	if err := t.wait(unix.POLLIN); err != nil {
		return true, err
	}
	buf := make([]byte, maxTalk)
	n, err := unix.Read(t.fd, buf[:maxTalk-len(t.got)])
	if err == unix.EINTR || err == unix.EAGAIN {
		return false, nil
	}
	t.got = append(t.got, buf[:max(n, 0)]...)
	return n <= 0 || len(t.got) == maxTalk, err
}

// upTo returns what was said up to a mark, the mark included, and keeps what came after it.
func (t *talk) upTo(mark string) ([]byte, error) {
	for {
		if i := bytes.Index(t.got, []byte(mark)); i >= 0 {
			head := t.got[:i+len(mark)]
			t.got = t.got[i+len(mark):]
			return head, nil
		}
		if err := t.need(); err != nil {
			return nil, err
		}
	}
}

// take returns the next n bytes.
func (t *talk) take(n int) ([]byte, error) {
	for len(t.got) < n {
		if err := t.need(); err != nil {
			return nil, err
		}
	}
	head := t.got[:n]
	t.got = t.got[n:]
	return head, nil
}

func (t *talk) need() error {
	done, err := t.more()
	if err == nil && done {
		err = fmt.Errorf("it closed after %d bytes of another answer", len(t.got))
	}
	return err
}

// rest reads to the end of the connection. An end with a reset is an end.
func (t *talk) rest() ([]byte, error) {
	for {
		done, err := t.more()
		if err == unix.ECONNRESET {
			return t.got, nil
		}
		if done || err != nil {
			return t.got, err
		}
	}
}

// socketError returns how a connection of a non-blocking socket ended.
func socketError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}
