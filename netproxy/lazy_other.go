//go:build !unix

package netproxy

import (
	"net"
)

// lazyReader holds a buffer while it waits; systems without readiness events have nothing better.
type lazyReader struct {
	conn *net.TCPConn
	pool *buffers
}

func newLazyReader(c *net.TCPConn, pool *buffers) *lazyReader { return &lazyReader{c, pool} }

func (l *lazyReader) read() (*[]byte, int, error) {
	b := l.pool.get()
	n, err := l.conn.Read(*b)
	if n > 0 {
		return b, n, nil
	}
	l.pool.put(b)
	return nil, 0, err
}

// quiet cannot know, so idle connections are not used again.
func quiet(*net.TCPConn) bool { return false }

// departed cannot know; the time limits end such connections.
func departed(*net.TCPConn) (gone, half bool) { return false, false }
