package load

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"coworker/integration/load/network"
)

const echoPort = 7000

// origin sends back what it gets, and counts.
type origin struct {
	l       net.Listener
	running sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	most  int
	quiet *sync.Cond // signalled when the last connection has ended
}

func newOrigin(t testing.TB, n *network.Network) *origin {
	t.Helper()
	o := &origin{open: map[net.Conn]bool{}}
	o.quiet = sync.NewCond(&o.mu)
	err := n.Far(func() (err error) {
		o.l, err = net.Listen("tcp", net.JoinHostPort(network.Address, strconv.Itoa(echoPort)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o.running.Go(o.accept)
	t.Cleanup(func() {
		o.l.Close()
		o.mu.Lock()
		for c := range o.open {
			c.Close()
		}
		o.mu.Unlock()
		o.running.Wait()
	})
	return o
}

func (o *origin) accept() {
	for {
		c, err := o.l.Accept()
		if err != nil {
			return
		}
		o.mu.Lock()
		o.open[c] = true
		o.most = max(o.most, len(o.open))
		o.mu.Unlock()
		o.running.Go(func() {
			// Not io.Copy on the connections themselves, which would hold a pipe for each (splice(2)).
			io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 2<<10))
			c.Close()
			o.mu.Lock()
			if delete(o.open, c); len(o.open) == 0 {
				o.quiet.Broadcast()
			}
			o.mu.Unlock()
		})
	}
}

// count is how many connections are open.
func (o *origin) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// ended waits until no connection is open. The session is over by then, so nothing can hold one.
func (o *origin) ended(t testing.TB) {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		t.Errorf("%d connections to the origin are still open after a minute", o.count())
		o.l.Close()
		o.mu.Lock()
		defer o.mu.Unlock()
		for c := range o.open {
			c.Close()
		}
	})
	defer late.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.open) > 0 {
		o.quiet.Wait()
	}
}
