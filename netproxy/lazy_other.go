//go:build !unix

package netproxy

import (
	"net"
	"sync"
)

// lazyReader holds a buffer while it waits; systems without readiness events have nothing better.
type lazyReader struct {
	conn *net.TCPConn
	pool *sync.Pool
}

func newLazyReader(c *net.TCPConn, pool *sync.Pool) *lazyReader { return &lazyReader{c, pool} }

func (l *lazyReader) read() (*[]byte, int, error) {
	b := l.pool.Get().(*[]byte)
	n, err := l.conn.Read(*b)
	if n > 0 {
		return b, n, nil
	}
	l.pool.Put(b)
	return nil, 0, err
}

// quiet cannot know, so idle connections are not used again.
func quiet(*net.TCPConn) bool { return false }

// departed cannot know; the time limits end such connections.
func departed(*net.TCPConn) (gone, half bool) { return false, false }
