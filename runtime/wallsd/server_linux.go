package wallsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Config says how a server works.
type Config struct {
	Most   enforce.Limits // what one session may have at most; zero values bound nothing
	Below  string         // delegated group of v2 for the sessions' groups, see cgroup.NewBelow
	Build  string         // version of the build, told to clients
	PerUID int            // connections of one user at once; 0: 256
	Total  int            // connections at once; 0: 1024
	Log    *Log
}

// Server holds the wards of the sessions of others.
type Server struct {
	config  Config
	closing chan struct{} // closed when the server ends

	mu    sync.Mutex
	users map[int]int // connections by uid
	total int
	conns map[*net.UnixConn]bool
	work  sync.WaitGroup

	// Tests put themselves into these windows of a move. nil otherwise.
	checked func(pid int) // between the check of a process and its move
	moved   func(pid int) // between the move and the check that the number still meant the same process
}

// NewServer makes a server; Serve starts it.
func NewServer(c Config) *Server {
	if c.PerUID == 0 {
		c.PerUID = 256
	}
	if c.Total == 0 {
		c.Total = 1024
	}
	return &Server{config: c, closing: make(chan struct{}), users: map[int]int{}, conns: map[*net.UnixConn]bool{}}
}

// Limits of time.
const (
	shakeLimit  = 5 * time.Second  // from a connection to its open
	answerLimit = 10 * time.Second // for the other side to take an answer
	emptyLimit  = 5 * time.Second  // for the processes of a session to end
)

// Serve accepts connections until the context ends. It returns when every session has ended: its processes first, then its
// walls. The listener is closed then.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() {
		close(s.closing)
		l.Close() // Accept returns then
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.Close()
		}
	})
	defer s.work.Wait()
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.accept(conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
			s.config.Log.write(line{Op: "accept", Verdict: "refused", Reason: err.Error()})
			time.Sleep(50 * time.Millisecond) // until something is closed; sessions go on meanwhile
		default:
			return errors.Join(fmt.Errorf("accept: %w", err), l.Close())
		}
	}
}

// accept admits a connection or tells why not. It never waits for the other side.
func (s *Server) accept(conn *net.UnixConn) {
	p, err := peerOf(conn)
	if err == nil {
		if err = s.admit(conn, p); err != nil {
			p.close()
		}
	}
	if err == nil {
		return
	}
	newRefusal(conn, err)
	conn.Close()
	l := line{Op: "connect", Verdict: "refused", Reason: err.Error()}
	if p != nil {
		l.UID, l.PID = p.uid, p.pid
	}
	s.config.Log.write(l)
}

// newRefusal answers a connection that gets no session; whoever does not wait for it is not waited for.
func newRefusal(conn *net.UnixConn, err error) {
	p := &packets{conn: conn}
	_ = p.sendNow(answer{Seq: 1, Error: err.Error()})
}

// admit counts the connection and starts it.
func (s *Server) admit(conn *net.UnixConn, p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return fmt.Errorf("%w: the helper ends", errPeer)
	default:
	}
	if s.total >= s.config.Total {
		return fmt.Errorf("%w: %d connections are open, and no more are held", errPeer, s.total)
	}
	if s.users[p.uid] >= s.config.PerUID {
		return fmt.Errorf("%w: uid %d has %d connections open, and may have no more", errPeer, p.uid, s.users[p.uid])
	}
	s.total++
	s.users[p.uid]++
	s.conns[conn] = true
	s.work.Go(func() {
		defer s.release(conn, p)
		newLink(s, conn, p).serve()
	})
	return nil
}

func (s *Server) release(conn *net.UnixConn, p *peer) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.users[p.uid]--; s.users[p.uid] == 0 {
		delete(s.users, p.uid)
	}
	delete(s.conns, conn)
	p.close()
}
