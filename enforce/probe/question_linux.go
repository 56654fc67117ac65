package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Types and codes of DNS (RFC 1035 section 3.2.2 and 4.1.1, RFC 3596).
const (
	typeA    = 1
	typeTXT  = 16
	typeAAAA = 28

	classInternet = 1
	noError       = 0
	nxDomain      = 3
)

const (
	headerSize = 12
	// maxReply bounds an answer: without EDNS that is the size of a datagram (RFC 1035 section 2.3.4).
	maxReply   = 512
	maxAnswers = 16
)

// question makes a query with one question. The name has no trailing dot.
func question(id uint16, name string, kind uint16) ([]byte, error) {
	q := make([]byte, headerSize, headerSize+len(name)+6)
	binary.BigEndian.PutUint16(q, id)
	q[2] = 1 // recursion desired, as every stub resolver says
	q[5] = 1 // one question
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 {
			return nil, fmt.Errorf("a label of %d bytes in the name of the probe", len(label))
		}
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0)
	q = binary.BigEndian.AppendUint16(q, kind)
	return binary.BigEndian.AppendUint16(q, classInternet), nil
}

// reply is what an answer says.
type reply struct {
	code      int
	addresses [][]byte // data of the answers of the type that was asked for
	answers   int      // records of any type in the answer section
}

var errShort = errors.New("the answer ends too early")

// parseReply reads the answer to a question. The other end is trusted with nothing: another id, another question, a
// truncated or overlong message is an error.
func parseReply(asked, data []byte) (reply, error) {
	if len(data) < headerSize || len(data) > maxReply {
		return reply{}, fmt.Errorf("an answer of %d bytes", len(data))
	}
	const response, truncated, opcode = 0x80, 0x02, 0x78
	if data[0] != asked[0] || data[1] != asked[1] || data[2]&response == 0 || data[2]&(truncated|opcode) != 0 {
		return reply{}, errors.New("the answer has another id, or is none")
	}
	body := asked[headerSize:]
	if binary.BigEndian.Uint16(data[4:]) != 1 || !strings.EqualFold(string(data[headerSize:min(len(data), len(asked))]), string(body)) {
		return reply{}, errors.New("the answer is to another question")
	}
	r := reply{code: int(data[3] & 0x0f), answers: int(binary.BigEndian.Uint16(data[6:]))}
	if r.answers > maxAnswers {
		return reply{}, fmt.Errorf("an answer of %d records", r.answers)
	}
	kind := binary.BigEndian.Uint16(body[len(body)-4:])
	rest := data[len(asked):]
	for range r.answers {
		var err error
		var got uint16
		var value []byte
		if got, value, rest, err = record(rest); err != nil {
			return reply{}, err
		}
		if got == kind {
			r.addresses = append(r.addresses, value)
		}
	}
	return r, nil
}

// record takes one resource record off the front.
func record(data []byte) (kind uint16, value, rest []byte, err error) {
	if rest, err = skipName(data); err != nil {
		return 0, nil, nil, err
	}
	const fixed = 10 // type, class, time to live, length
	if len(rest) < fixed {
		return 0, nil, nil, errShort
	}
	kind, n := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[8:]))
	if class := binary.BigEndian.Uint16(rest[2:]); class != classInternet {
		return 0, nil, nil, fmt.Errorf("a record of class %d", class)
	}
	if rest = rest[fixed:]; len(rest) < n {
		return 0, nil, nil, errShort
	}
	return kind, rest[:n], rest[n:], nil
}

// skipName takes a name off the front: labels up to an empty one or a pointer (RFC 1035 section 4.1.4), which is not
// followed.
func skipName(data []byte) ([]byte, error) {
	for len(data) > 0 {
		n := int(data[0])
		switch {
		case n == 0:
			return data[1:], nil
		case n >= 0xc0 && len(data) >= 2:
			return data[2:], nil
		case n > 63 || len(data) <= n:
			return nil, errShort
		}
		data = data[n+1:]
	}
	return nil, errShort
}
