package tlshello

import (
	"errors"
	"fmt"
)

// MaxHello bounds what is buffered for one hello, record headers included. Real ones, with post-quantum key shares, stay
// below 4 KiB.
const MaxHello = 64 << 10

// ErrIncomplete asks for more bytes.
var ErrIncomplete = errors.New("ClientHello is incomplete")

// Refusal says why the first bytes of a tunnel are not an acceptable ClientHello.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func bad(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

const (
	recordHeader  = 5
	recordMax     = 1 << 14 // RFC 8446 section 5.1
	maxRecords    = 64      // of one hello; bounds the work when it comes octet by octet
	typeHandshake = 22
	clientHello   = 1
)

// reassemble joins the fragments of the first handshake message (RFC 8446 section 5.1) and returns its body and the bytes
// it took. Wrong bytes are refused as soon as they are seen, so that a client that speaks first in clear text is not
// waited for.
func reassemble(b []byte) (body []byte, n int, err error) {
	if len(b) > MaxHello {
		b = b[:MaxHello]
	}
	var msg []byte
	for range maxRecords {
		rest := b[n:]
		if err := checkRecordHeader(rest); err != nil {
			return nil, 0, err
		}
		if len(rest) < recordHeader {
			return nil, 0, incomplete(b)
		}
		size := int(rest[3])<<8 | int(rest[4])
		fragment := rest[recordHeader:min(len(rest), recordHeader+size)]
		msg = append(msg, fragment...)
		want, err := checkMessageHeader(msg)
		if err != nil {
			return nil, 0, err
		}
		if len(fragment) < size {
			return nil, 0, incomplete(b)
		}
		n += recordHeader + size
		switch {
		case want < 0 || len(msg) < want:
			continue
		case len(msg) > want:
			// RFC 8446 section 5.1: a ClientHello can precede a key change, so it ends where its record ends.
			return nil, 0, bad("%d octets follow the ClientHello in its record", len(msg)-want)
		}
		return msg[4:], n, nil
	}
	return nil, 0, bad("a ClientHello split over more than %d records", maxRecords)
}

func incomplete(b []byte) error {
	if len(b) == MaxHello {
		return bad("a ClientHello of more than 64 KiB")
	}
	return ErrIncomplete
}

// checkRecordHeader looks at as much of type, version and length as there is.
func checkRecordHeader(b []byte) error {
	switch {
	case len(b) > 0 && b[0] != typeHandshake:
		return bad("first octet 0x%02x is no TLS handshake record", b[0])
	case len(b) > 1 && b[1] != 3, len(b) > 2 && (b[2] < 1 || b[2] > 4):
		return bad("record version 0x%02x%02x is no TLS version", b[1], b[min(2, len(b)-1)])
	case len(b) < recordHeader:
		return nil
	}
	switch size := int(b[3])<<8 | int(b[4]); {
	case size == 0:
		return bad("an empty handshake record")
	case size > recordMax:
		return bad("a record of %d octets", size)
	}
	return nil
}

// checkMessageHeader gives the length of the whole message, -1 while its header is not complete.
func checkMessageHeader(msg []byte) (int, error) {
	if len(msg) > 0 && msg[0] != clientHello {
		return 0, bad("handshake message %d where a ClientHello is expected", msg[0])
	}
	if len(msg) < 4 {
		return -1, nil
	}
	size := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
	if size > MaxHello {
		return 0, bad("a ClientHello of %d octets", size)
	}
	return size, nil
}
