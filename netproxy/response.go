package netproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// bufioPool keeps readers between connections.
type bufioPool struct {
	size int
	pool sync.Pool
}

func (p *bufioPool) get(r io.Reader) *bufio.Reader {
	if b, ok := p.pool.Get().(*bufio.Reader); ok {
		b.Reset(r)
		return b
	}
	return bufio.NewReaderSize(r, p.size)
}

func (p *bufioPool) put(b *bufio.Reader) {
	b.Reset(nil)
	p.pool.Put(b)
}

var outputs = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 8<<10) }}

// response is the http.ResponseWriter that goproxy writes an answer to. It frames the body with Content-Length or chunks,
// whichever the answer has room for, and ends the connection where neither is possible.
type response struct {
	x      *exchange
	header http.Header
	out    *bufio.Writer
	status int
	wrote  bool
	close  bool
	// how the body is framed
	none    bool
	chunked bool
	left    int64 // of Content-Length; negative: none
	trailer []string
	err     error
}

func newResponse(x *exchange) *response {
	w := &response{x: x, header: http.Header{}, out: outputs.Get().(*bufio.Writer), left: -1}
	w.out.Reset(clientWriter{x.h})
	return w
}

// clientWriter has each write end in bounded time: a client that stops reading is silent, and the watchdog ends it.
type clientWriter struct{ h *httpLoop }

func (c clientWriter) Write(p []byte) (int, error) {
	n, err := c.h.out.Write(p)
	c.h.c.dog.touch()
	return n, err
}

func (w *response) free() {
	w.out.Reset(nil)
	outputs.Put(w.out)
	w.out = nil
}

// Header is part of http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if w.wrote || w.x.failed != nil {
		return
	}
	w.wrote, w.status = true, status
	w.frame()
	w.line(status)
	w.fields()
	switch {
	case w.x.switched:
		w.out.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\n")
	case w.close:
		w.out.WriteString("Connection: close\r\n")
	}
	w.out.WriteString("\r\n")
}

// frame decides how the end of the body is shown.
func (w *response) frame() {
	w.none = w.x.req.Method == http.MethodHead || w.status < 200 || w.status == http.StatusNoContent || w.status == http.StatusNotModified
	w.close = w.x.req.Close || w.x.req.Minor == 0
	w.trailer = w.header["Trailer"]
	if v := w.header["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.left = n
			w.header["Content-Length"] = v[:1]
		} else {
			delete(w.header, "Content-Length")
		}
	}
	if w.status < 200 || w.status == http.StatusNoContent {
		delete(w.header, "Content-Length") // RFC 9110 section 8.6
	}
	if w.none || w.left >= 0 && len(w.trailer) == 0 {
		return
	}
	delete(w.header, "Content-Length")
	w.left = -1
	if w.x.req.Minor == 1 {
		w.chunked = true
		w.header["Transfer-Encoding"] = []string{"chunked"}
		return
	}
	w.close = true
}

func (w *response) line(status int) {
	w.out.WriteString("HTTP/1.1 ")
	w.out.WriteString(strconv.Itoa(status))
	w.out.WriteByte(' ')
	w.out.WriteString(http.StatusText(status))
	w.out.WriteString("\r\n")
}

// fields writes the header. http.ReadResponse has let no line end through; a field that has one all the same is left out.
func (w *response) fields() {
	names := make([]string, 0, len(w.header))
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range w.header[name] {
			w.field(name, v)
		}
	}
}

func (w *response) field(name, value string) {
	if strings.ContainsAny(name, "\r\n: ") || strings.ContainsAny(value, "\r\n\x00") {
		return
	}
	w.out.WriteString(name)
	w.out.WriteString(": ")
	w.out.WriteString(value)
	w.out.WriteString("\r\n")
}

// interim passes a 1xx answer on.
func (w *response) interim(r *http.Response) {
	if w.x.req.Minor == 0 {
		return
	}
	w.line(r.StatusCode)
	keep := w.header
	w.header = r.Header
	w.fields()
	w.header = keep
	w.out.WriteString("\r\n")
	w.out.Flush()
}

var errTooLong = errors.New("the body is longer than its Content-Length")

// Write is part of http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.x.failed != nil {
		return len(p), nil // goproxy's own text; the refusal is written instead
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.none || len(p) == 0:
		return len(p), nil
	case w.chunked:
		fmt.Fprintf(w.out, "%x\r\n", len(p))
		w.out.Write(p)
		_, w.err = w.out.WriteString("\r\n")
	case w.left >= 0 && int64(len(p)) > w.left:
		w.err = errTooLong
	default:
		if w.left > 0 {
			w.left -= int64(len(p))
		}
		_, w.err = w.out.Write(p)
	}
	if w.err != nil {
		w.abandon()
		return 0, w.err
	}
	return len(p), nil
}

// abandon ends the origin's connection when its answer has nowhere to go. Closing such a body would read it to its end.
func (w *response) abandon() {
	if w.x.origin != nil {
		w.x.origin.conn.Close()
	}
}

// ReadFrom copies a body. What came is sent when the origin has no more ready, so that a stream is not held back and a
// small answer leaves in one piece.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	if w.none {
		return 0, nil
	}
	buf := bulk.get()
	defer bulk.put(buf)
	total := int64(0)
	for {
		if w.out.Buffered() > 0 && total > 0 && w.stalled() {
			w.Flush()
		}
		if n, err := w.moveBody(r); n > 0 || err != nil {
			if total += n; err != nil {
				return total, err
			}
		}
		n, err := r.Read(*buf)
		if n > 0 {
			total += int64(n)
			if _, err := w.Write((*buf)[:n]); err != nil {
				return total, err
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			w.err = err
			return total, err
		}
	}
}

// stalled says that the next read may wait.
func (w *response) stalled() bool {
	return w.left != 0 && (w.x.origin == nil || w.x.origin.br == nil || w.x.origin.br.Buffered() == 0)
}

// Flush is part of http.Flusher.
func (w *response) Flush() {
	if err := w.out.Flush(); err != nil && w.err == nil {
		w.err = err
		w.abandon()
	}
}

// finish ends the body and sends everything. An answer that broke off is left incomplete, so that the client sees it.
func (w *response) finish() error {
	if w.err == nil && w.left > 0 && !w.none {
		w.err = io.ErrUnexpectedEOF
	}
	if w.err == nil && w.chunked {
		w.out.WriteString("0\r\n")
		w.trailers()
		w.out.WriteString("\r\n")
	}
	w.Flush()
	return w.err
}

func (w *response) trailers() {
	for _, list := range w.trailer {
		for name := range strings.SplitSeq(list, ", ") {
			for _, v := range w.header[name] {
				w.field(name, v)
			}
		}
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			for _, v := range values {
				w.field(name, v)
			}
		}
	}
}
