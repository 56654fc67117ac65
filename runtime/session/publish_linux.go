package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"coworker/runtime/wire"
)

// Published is a port of the host's loopback that leads to a program inside.
type Published struct {
	listener net.Listener
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// maxForwards bounds the connections of one published port at a time; more wait in the backlog.
const maxForwards = 128

// Publish listens on 127.0.0.1 of the host and connects each connection to a port inside.
// hostPort 0 picks a free one; see Addr. The caller closes it before the session.
func (s *Session) Publish(ctx context.Context, hostPort, port uint16) (*Published, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(hostPort))))
	if err != nil {
		return nil, fmt.Errorf("publish port %d: %w", port, err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Published{listener: l, stop: stop}
	p.work.Go(func() { p.accept(ctx, s, port) })
	return p, nil
}

// Addr is where it listens.
func (p *Published) Addr() net.Addr { return p.listener.Addr() }

// Close ends the listener and every connection, and waits for them.
func (p *Published) Close() error {
	p.stop()
	err := p.listener.Close()
	p.work.Wait()
	return err
}

func (p *Published) accept(ctx context.Context, s *Session, port uint16) {
	slots := make(chan struct{}, maxForwards)
	for {
		outside, err := p.listener.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			outside.Close()
			return
		}
		p.work.Go(func() {
			defer func() { <-slots }()
			forward(ctx, s, port, outside)
		})
	}
}

// forward joins one connection with the program inside, each direction with its own end.
func forward(ctx context.Context, s *Session, port uint16, outside net.Conn) {
	defer outside.Close()
	inside, err := s.Dial(ctx, port)
	if err != nil {
		return // nobody listens inside: the connection just closes, as a reset would
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() {
		outside.Close()
		inside.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pipe(inside, outside) })
	both.Go(func() { pipe(outside, inside) })
	both.Wait()
}

func pipe(to, from net.Conn) {
	io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	to.Close()
}

// dialLimit bounds how long the cell may take to connect inside.
const dialLimit = 10 * time.Second

// Dial connects to a port that a program inside listens on. The socket was made inside; it cannot
// reach anything but the cell's own loopback.
func (s *Session) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if state := s.current(); state != Ready {
		return nil, fmt.Errorf("connect to port %d in a session that is %s", port, state)
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	id, answer := s.link.newDial()
	if err := s.link.send(wire.TypeDial, wire.Dial{ID: id, Port: port}); err != nil {
		s.link.forget(id)
		return nil, err
	}
	select {
	case r := <-answer:
		if r.failed != nil {
			return nil, fmt.Errorf("connect to port %d inside: %w", port, syscall.Errno(r.failed.Errno))
		}
		return fileConn(r.conn)
	case <-s.link.ended:
		return nil, s.lost()
	case <-ctx.Done():
		s.link.abandonDial(id, answer)
		return nil, fmt.Errorf("connect to port %d inside: %w", port, ctx.Err())
	}
}

func fileConn(f *os.File) (net.Conn, error) {
	conn, err := net.FileConn(f)
	return conn, errors.Join(err, f.Close())
}

// newDial registers a connection before it is asked for.
func (l *cellLink) newDial() (uint64, chan dialResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	answer := make(chan dialResult, 1)
	l.dials[l.lastID] = answer
	return l.lastID, answer
}

// abandonDial leaves the entry, so that a late answer is no violation, and closes its socket.
func (l *cellLink) abandonDial(id uint64, answer chan dialResult) {
	go func() {
		select {
		case r := <-answer:
			if r.conn != nil {
				r.conn.Close()
			}
		case <-l.ended:
			l.forget(id)
		}
	}()
}
