package tlshello

import "coworker/netproxy/hostmatch"

// Watch follows what a client sends after its first hello, for a second one. A server may ask for another hello
// (HelloRetryRequest, RFC 8446 section 4.1.4), which comes in clear and must repeat the server name; servers differ in
// whether they compare, so a client and an edge that work together could name the real site only then.
type Watch struct {
	host  hostmatch.Host
	early bool // the first hello offered early data, which ends nothing
	done  bool
	buf   []byte // the beginning of a record, or the records of one hello
	end   int    // where the record or record header at the end of buf is complete; 0 outside of a hello
	head  bool   // it is a header
	skip  int    // octets left of a record that is no hello
}

const (
	typeChangeCipher = 20
	typeAlert        = 21
	typeData         = 23

	// cipherMax is the longest encrypted record: 2^14 and the expansion of TLS 1.2 (RFC 5246 section 6.2.3).
	cipherMax = recordMax + 2048
)

// NewWatch begins after the first hello, which has been checked for host.
func NewWatch(first *Hello, host hostmatch.Host) *Watch {
	return &Watch{host: host, early: first.EarlyData}
}

// Done says that no hello in clear can follow, so that the bytes need not be shown any more.
func (w *Watch) Done() bool { return w.done }

// Feed takes the next bytes from the client, before they are sent on. An error ends the tunnel. Bytes of a second hello
// may have been sent on before its end shows the wrong name, but the server cannot act on half a hello.
func (w *Watch) Feed(b []byte) error {
	for len(b) > 0 && !w.done {
		if w.skip > 0 {
			n := min(w.skip, len(b))
			b, w.skip = b[n:], w.skip-n
			continue
		}
		w.buf = append(w.buf, b[0])
		b = b[1:]
		if err := w.look(); err != nil {
			return err
		}
	}
	return nil
}

// look acts on what the buffer holds: a record header, the beginning of a handshake message, or part of a hello.
func (w *Watch) look() error {
	const headers = recordHeader + 6 // and the message header with the hello's version
	if len(w.buf) < recordHeader {
		return nil
	}
	size := int(w.buf[3])<<8 | int(w.buf[4])
	switch kind := w.buf[0]; {
	case w.buf[1] != 3 || size > cipherMax:
		return bad("octets that are no TLS record after the ClientHello")
	case kind == typeData && !w.early:
		w.done = true
	case kind == typeData, kind == typeAlert, kind == typeChangeCipher:
		w.drop(size)
	case kind != typeHandshake:
		return bad("a record of type %d after the ClientHello", kind)
	case size < 6:
		return bad("a handshake record of %d octets after the ClientHello", size)
	case len(w.buf) < headers:
	case !w.isHello():
		w.drop(size - 6)
	default:
		return w.hello(size)
	}
	return nil
}

func (w *Watch) drop(n int) { w.buf, w.skip = w.buf[:0], n }

// isHello looks at the first octets of a handshake record: type, a length below 64 KiB, the major version. The record may
// be encrypted or the rest of a long certificate; such bytes pass for a hello with a probability of 2^-24.
func (w *Watch) isHello() bool {
	m := w.buf[recordHeader:]
	return m[0] == clientHello && m[1] == 0 && m[4] == 3
}

// hello looks at the second hello whenever a record of it is complete.
func (w *Watch) hello(size int) error {
	if w.end == 0 {
		w.end = recordHeader + size
	}
	if len(w.buf) < w.end {
		return nil
	}
	if w.head {
		w.end, w.head = w.end+(int(w.buf[w.end-2])<<8|int(w.buf[w.end-1])), false
		return nil
	}
	h, _, err := Parse(w.buf)
	if err == ErrIncomplete {
		w.end, w.head = w.end+recordHeader, true
		return nil
	}
	if err == nil {
		err = h.Check(w.host)
	}
	w.buf, w.end = w.buf[:0], 0
	return err
}
