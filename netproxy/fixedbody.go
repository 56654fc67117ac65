package netproxy

import (
	"io"
	"net"
	"net/http"
)

// fixedBody is the body of an answer whose length is known. Unlike that of net/http, it is not read to its end when it is
// closed, and its octets can be moved inside the kernel.
type fixedBody struct {
	o    *origin
	left int64
}

// fix replaces the body of an answer that has one of known length.
func (o *origin) fix(resp *http.Response) {
	if resp.ContentLength > 0 && len(resp.TransferEncoding) == 0 && resp.Body != http.NoBody {
		resp.Body = &fixedBody{o, resp.ContentLength}
	}
}

func (b *fixedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.o.br.Read(p)
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close has the connection end if the body was not read to its end: what follows is no answer.
func (b *fixedBody) Close() error {
	if b.left > 0 {
		b.o.lastClose = true
	}
	return nil
}

// worthMoving is how long a body must be to be moved.
const worthMoving = 8 * moveAgain

// moveBody moves as much of a long body as has not been read ahead, if it passes as it is. The rest is for the caller.
func (w *response) moveBody(r io.Reader) (int64, error) {
	body, fixed := r.(*fixedBody)
	client, plain := w.x.h.out.(*net.TCPConn)
	if !fixed || !plain || body.o.secured || w.left != body.left || body.left < worthMoving || body.o.br.Buffered() > 0 {
		return 0, nil
	}
	if w.Flush(); w.err != nil {
		return 0, w.err
	}
	m := newMover(body.o.tcp, client)
	total := int64(0)
	for m != nil && body.left > 0 {
		n, err := m.move(body.left)
		total, body.left, w.left, body.o.in = total+n, body.left-n, w.left-n, body.o.in+n
		w.x.h.c.dog.touch()
		switch {
		case err == io.EOF:
			w.err = io.ErrUnexpectedEOF
		case err != nil:
			w.err = err
			w.abandon()
		case n == 0:
			return total, nil
		}
		if w.err != nil {
			return total, w.err
		}
	}
	return total, nil
}
