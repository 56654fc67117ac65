package netproxy

import (
	"io"
	"net"
)

// webSocket relays frames after both sides agreed. What the origin sent behind its answer goes first.
func (x *exchange) webSocket() {
	if x.h.opened {
		x.frames()
		x.account()
		return
	}
	o := x.origin
	ahead, _ := o.br.Peek(o.br.Buffered())
	if len(ahead) > 0 {
		if _, err := x.h.out.Write(ahead); err != nil {
			x.account()
			return
		}
	}
	x.account()
	x.h.c.relay(x.a, o.tcp, nil)
	if why := x.h.c.dog.why(); why != "" {
		x.a.rec.Broken = why
	}
}

// frames relays between two TLS connections, which have no descriptors to wait for. What comes from the origin passes the
// filter, as an answer does.
func (x *exchange) frames() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.pump(x.origin, x.origin.conn, x.h.in)
	}()
	x.pump(x.h.out, x.h.out, x.add.Body(x.origin.br))
	x.h.c.conn.Close()
	<-done
}

// pump copies until from ends, and ends the half of conn that to writes to.
func (x *exchange) pump(to io.Writer, conn net.Conn, from io.Reader) {
	buf := bulk.get()
	defer bulk.put(buf)
	io.CopyBuffer(touching{to, x.h.c.dog}, onlyReader{from}, *buf)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
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
