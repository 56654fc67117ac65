package cell

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

const (
	maxDials    = 64              // connections being made at once
	dialTimeout = 3 * time.Second // per address; a listener whose queue is full does not answer
)

// dials knows the connections that are being made.
type dials struct {
	done chan struct{}
	wg   sync.WaitGroup
	slot chan struct{}
}

func (d *dials) init() {
	d.done = make(chan struct{})
	d.slot = make(chan struct{}, maxDials)
}

// close ends the dials in flight and waits for them; the wire is closed already.
func (d *dials) close() {
	close(d.done)
	d.wg.Wait()
}

// dial connects to a program's own server and hands the socket out. The sockets are made by hand
// because package net would bring a resolver and much else behind the wall.
func (s *server) dial(f *wire.Frame) error {
	var m wire.Dial
	if err := f.Decode(&m); err != nil {
		return err
	}
	select {
	case s.dials.slot <- struct{}{}:
	default:
		return s.conn.Send(wire.TypeDialFailed, dialFailed(m.ID, m.Port, unix.EAGAIN))
	}
	s.dials.wg.Go(func() {
		defer func() { <-s.dials.slot }()
		if err := s.connectAndSend(m); err != nil {
			s.conn.Close() // ends dispatch
		}
	})
	return nil
}

func (s *server) connectAndSend(m wire.Dial) error {
	socket, err := connect(&unix.SockaddrInet4{Port: int(m.Port), Addr: [4]byte{127, 0, 0, 1}}, s.dials.done)
	if err != nil {
		var err6 error
		socket, err6 = connect(&unix.SockaddrInet6{Port: int(m.Port), Addr: [16]byte{15: 1}}, s.dials.done)
		if err6 != nil {
			// The answer of 127.0.0.1 is the one a person expects.
			return s.conn.Send(wire.TypeDialFailed, dialFailed(m.ID, m.Port, err))
		}
	}
	defer socket.Close()
	return s.conn.Send(wire.TypeDialed, wire.Dialed{ID: m.ID}, socket)
}

func dialFailed(id uint64, port uint16, err error) wire.DialFailed {
	errno := syscall.EIO
	errors.As(err, &errno)
	return wire.DialFailed{ID: id, Errno: int(errno), Reason: fmt.Sprintf("connect to port %d of the session's loopback: %v", port, errno)}
}

// connect makes a non-blocking connected socket, or fails when done closes.
func connect(addr unix.Sockaddr, done <-chan struct{}) (*os.File, error) {
	family := unix.AF_INET
	if _, ok := addr.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, addr)
	if err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		unix.Close(fd)
		return nil, err
	}
	// From here on a poller waits for the socket. A socket that has not begun to connect must
	// not be given to it: epoll reports it as hung up.
	socket := os.NewFile(uintptr(fd), "dialed")
	if err != nil {
		err = waitConnected(socket, done)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// waitConnected waits for the end of a connect(2) that is in progress.
func waitConnected(socket *os.File, done <-chan struct{}) error {
	if err := socket.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	finished := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-done:
			socket.SetWriteDeadline(time.Unix(1, 0))
		case <-finished:
		}
	})
	defer watcher.Wait()
	defer close(finished)

	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	result := unix.EINPROGRESS
	err = raw.Write(func(fd uintptr) bool {
		result = connectResult(int(fd))
		return result != unix.EINPROGRESS
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return unix.ETIMEDOUT
	}
	if err != nil {
		return err
	}
	if result != 0 {
		return result
	}
	return nil
}

// connectResult is 0 when the socket is connected and EINPROGRESS while nothing is decided.
func connectResult(fd int) syscall.Errno {
	pending, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || pending != 0 {
		errno := syscall.Errno(pending)
		errors.As(err, &errno)
		return errno
	}
	if _, err := unix.Getpeername(fd); err == nil {
		return 0
	}
	return unix.EINPROGRESS
}
