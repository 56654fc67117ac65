package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

const (
	workers = 4  // goroutines per UDP socket; an answer takes microseconds and waits for nobody
	streams = 64 // TCP connections at once per listener; further ones wait in the accept queue
	// patience is how long a TCP client may take for one message, and how long it may be idle (RFC 7766 section 6.2.3
	// leaves both to the server).
	patience = 10 * time.Second
	maxError = 100 // errors of a socket in a row before it is given up
)

// Decision is the answer of the rules for a name.
type Decision struct {
	Allow bool
	// Reason is for the record and the client; Needed is the smallest rule that would allow the name; Rule decided.
	Reason, Needed, Rule string
}

// Resolver answers questions. Its fields are set before Serve and not changed after.
type Resolver struct {
	Names *Names
	// Decide is asked once per question. It may be called from several goroutines and must not wait for anybody; where a
	// person is to be asked, the name is allowed and the connection waits.
	Decide func(hostmatch.Host) Decision
	// Report gets one record for each question, refused or allowed, and for each message that is none. It may be called
	// from several goroutines and must not block. Questions about localhost and given addresses are not reported.
	Report func(flow.Record)
	IPv6   bool             // AAAA is answered
	Now    func() time.Time // nil: the clock
}

func (r *Resolver) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// Serve answers on all sockets until parent ends or a socket fails, and closes them. It returns when no goroutine of it
// is left; the error is nil if parent ended.
func (r *Resolver) Serve(parent context.Context, packets []net.PacketConn, listeners []net.Listener) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var all sync.WaitGroup
	serve := func(c io.Closer, loop func() error) {
		all.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			if err := loop(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("resolver: %w", err))
			}
		})
	}
	for _, p := range packets {
		for range workers {
			serve(p, func() error { return r.packets(ctx, p) })
		}
	}
	for _, l := range listeners {
		serve(l, func() error { return r.listen(ctx, l) })
	}
	<-ctx.Done()
	all.Wait()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// pause keeps an error that stays, such as a lack of descriptors, from using up a processor. It says whether to go on.
func pause(ctx context.Context) bool {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// packets answers datagrams. An error that concerns one of them must not end the resolver; one that stays must.
func (r *Resolver) packets(ctx context.Context, p net.PacketConn) error {
	buf := make([]byte, maxQuery+1)
	for failed := 0; ; {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			if failed++; failed >= maxError || !pause(ctx) {
				return fmt.Errorf("read questions on %s: %w", p.LocalAddr(), err)
			}
			continue
		}
		failed = 0
		if out := r.answer(buf[:n], 0); out != nil {
			_, _ = p.WriteTo(out, from) // whoever asked may be gone
		}
	}
}

func (r *Resolver) listen(ctx context.Context, l net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, streams)
	for failed := 0; ; {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			<-slots
			if failed++; failed >= maxError || !pause(ctx) {
				return fmt.Errorf("accept questions on %s: %w", l.Addr(), err)
			}
			continue
		}
		failed = 0
		open.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			r.stream(c)
		})
	}
}

// stream answers the messages of one connection in their order, each with its length before it (RFC 1035 section 4.2.2).
// It ends at the first that is no question.
func (r *Resolver) stream(c net.Conn) {
	buf := make([]byte, maxQuery)
	for {
		if c.SetDeadline(time.Now().Add(patience)) != nil {
			return
		}
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(buf))
		if n > maxQuery {
			r.malformed(fmt.Sprintf("a DNS message of %d bytes", n))
			return
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		out := r.answer(buf[:n], 1<<16-1)
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}
