package auditlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/landlock"
)

// minABI is the first Landlock ABI whose refusals are audited.
const minABI = 7

// ErrNotLive is wrapped by what says why this machine, or this process, has no such source.
var ErrNotLive = errors.New("no audit records of Landlock")

// Source gives the refusals of one session.
type Source struct {
	socket    datagrams
	wake      int // an eventfd, written by Close
	collector *collector
	cell      atomic.Int64
	unheard   atomic.Int64
	closed    atomic.Bool
	closing   sync.Once
	reading   sync.Mutex // held by Next, and by Close when Next has left; guards what is below, and the descriptors
	ready     []enforce.Refusal
	finished  bool // nothing is read any more
}

// datagrams is the socket, or what stands for it in a test.
type datagrams interface {
	descriptor() int
	// receive gets one datagram without waiting, cut to the buffer, and how long it was. It fails with EAGAIN if there is none.
	receive(buf []byte) (length int, fromKernel bool, err error)
	close() error
}

// Open joins the group of audit records for a session in the workspace. An error wraps ErrNotLive and says what is missing.
func Open(workspace string) (*Source, error) {
	socket, err := live()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotLive, err)
	}
	return newSource(socket, workspace)
}

func newSource(socket datagrams, workspace string) (*Source, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), socket.close())
	}
	s := &Source{socket: socket, wake: wake}
	s.collector = newCollector(workspace, s.member)
	return s, nil
}

// live finds out whether there is something to read, and by whom, and begins to.
func live() (datagrams, error) {
	switch abi, err := landlock.ABI(); {
	case err != nil:
		return nil, err
	case abi < minABI:
		return nil, fmt.Errorf("the kernel has Landlock ABI %d, and refusals are audited from %d on (Linux 6.15)", abi, minABI)
	}
	switch enabled, err := auditing(); {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("only root of the machine itself (CAP_AUDIT_CONTROL, first pid namespace) may ask whether auditing is on: %w", err)
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, fmt.Errorf("this kernel has no auditing: %w", err)
	case err != nil:
		return nil, err
	case !enabled:
		return nil, errors.New("auditing is off (auditctl -s), and is left as it is")
	}
	if err := firstNetwork(); err != nil {
		return nil, err
	}
	return join()
}

// firstNetwork checks that this process is in the network namespace to which the kernel sends records. It is in the first pid
// namespace, or could not have asked whether auditing is on, so process 1 is the machine's.
func firstNetwork() error {
	mine, err1 := os.Readlink("/proc/self/ns/net")
	first, err2 := os.Readlink("/proc/1/ns/net")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if mine != first {
		return errors.New("records are sent to the first network namespace, and this process is in another")
	}
	return nil
}

// Watch tells which process is the session's cell. Records that come before it are somebody else's.
func (s *Source) Watch(pid int) { s.cell.Store(int64(pid)) }

// member reports whether a process, or a thread, is the cell. (Before a fix of 6.15 the kernel named the thread.)
func (s *Source) member(pid int) bool {
	cell := int(s.cell.Load())
	if cell == 0 || pid == cell {
		return cell != 0
	}
	_, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", cell, pid))
	return err == nil
}

// Next waits for the next refusal. After Close it gives what was there, then os.ErrClosed. It has one caller.
func (s *Source) Next() (enforce.Refusal, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		if len(s.ready) > 0 {
			r := s.ready[0]
			s.ready = s.ready[1:]
			return r, nil
		}
		if s.finished {
			return enforce.Refusal{}, os.ErrClosed
		}
		if !s.closed.Load() {
			if err := s.wait(); err != nil {
				return enforce.Refusal{}, err
			}
		}
		if err := s.hear(); err != nil {
			return enforce.Refusal{}, err
		}
	}
}

// hear reads what is there. After Close nothing is waited for.
func (s *Source) hear() error {
	last := s.closed.Load()
	s.finished = last
	err := s.drain()
	now := time.Now()
	if last {
		now = now.Add(patience)
	}
	s.ready = append(s.ready, s.collector.due(now)...)
	s.unheard.Add(s.collector.unheard)
	s.collector.unheard = 0
	return err
}

// wait returns when there is a record, when one waited long enough, or after Close.
func (s *Source) wait() error {
	limit := -1
	if len(s.collector.waiting) > 0 {
		// Half of it, so that none waits much longer than that.
		limit = int(patience/time.Millisecond) / 2
	}
	fds := []unix.PollFd{{Fd: int32(s.socket.descriptor()), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, limit); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for an audit record: %w", err)
	}
	return nil
}

// burst is how many records are read before what is due is handed on.
const burst = 256

// drain reads what is there.
func (s *Source) drain() error {
	buf := make([]byte, maxDatagram)
	for range burst {
		n, fromKernel, err := s.socket.receive(buf)
		switch {
		case err == unix.EAGAIN:
			return nil
		case err == unix.EINTR:
			continue
		case err == unix.ENOBUFS: // more came than was read; how many nobody knows
			s.unheard.Add(1)
			continue
		case err != nil:
			return fmt.Errorf("read audit records: %w", err)
		case !fromKernel:
			continue // anybody may send to a netlink socket
		case n > len(buf):
			s.unheard.Add(1)
			continue
		}
		kind, text, err := unpack(buf[:n])
		if err != nil {
			s.unheard.Add(1)
			continue
		}
		s.ready = append(s.ready, s.collector.add(kind, text, time.Now())...)
	}
	return nil
}

// maxDatagram is more than the header and the longest text.
const maxDatagram = unix.SizeofNlMsghdr + maxText + 64

// unpack takes the netlink header off. Audit has always been careless about the length in it (audit_log_end in the kernel), so
// the datagram's counts.
func unpack(b []byte) (kind uint16, text string, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return 0, "", fmt.Errorf("%w: %d bytes", errRecord, len(b))
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length > len(b) || length+unix.SizeofNlMsghdr < len(b)&^(unix.NLMSG_ALIGNTO-1) {
		return 0, "", fmt.Errorf("%w: it says %d bytes and has %d", errRecord, length, len(b))
	}
	return binary.NativeEndian.Uint16(b[4:]), string(b[unix.SizeofNlMsghdr:]), nil
}

// Unheard counts what Next did not get: too much at once, or not to be understood.
func (s *Source) Unheard() int64 { return s.unheard.Load() }

// Close leaves the group, and Next ends with what is there already. It may be called twice.
func (s *Source) Close() (err error) {
	s.closing.Do(func() {
		s.closed.Store(true)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		_, err = unix.Write(s.wake, one)
		s.reading.Lock() // Next has left
		defer s.reading.Unlock()
		if !s.finished {
			err = errors.Join(err, s.hear())
		}
		err = errors.Join(err, s.socket.close(), unix.Close(s.wake))
	})
	return err
}
