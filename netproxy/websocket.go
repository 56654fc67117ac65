package netproxy

import (
	"io"
	"net"

	"coworker/netproxy/tlshello"
)

// webSocket relays frames after both sides agreed. What the origin sent behind its answer goes first.
func (x *exchange) webSocket() {
	o := x.origin
	ahead, _ := o.br.Peek(o.br.Buffered())
	if len(ahead) > 0 {
		if _, err := x.h.out.Write(ahead); err != nil {
			x.account()
			return
		}
	}
	x.account()
	if x.h.opened {
		x.frames()
		return
	}
	var none *tlshello.Watch
	x.h.c.relay(x.a, o.tcp, none)
	if why := x.h.c.dog.why(); why != "" {
		x.a.rec.Broken = why
	}
}

// frames relays between two TLS connections, which have no descriptors to wait for.
func (x *exchange) frames() {
	done := make(chan int64, 1)
	go func() {
		n := x.pump(x.origin.conn, x.h.in)
		done <- n
	}()
	x.a.rec.BytesIn += x.pump(x.h.out, x.origin.conn)
	x.h.c.conn.Close()
	x.a.rec.BytesOut += <-done
}

func (x *exchange) pump(to net.Conn, from io.Reader) int64 {
	buf := bulk.Get().(*[]byte)
	defer bulk.Put(buf)
	n, _ := io.CopyBuffer(touching{to, x.h.c.dog}, onlyReader{from}, *buf)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	return n
}

type onlyReader struct{ io.Reader }

type touching struct {
	io.Writer
	dog *watchdog
}

func (t touching) Write(p []byte) (int, error) {
	t.dog.touch()
	return t.Writer.Write(p)
}
