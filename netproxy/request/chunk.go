package request

// Limits of the parts of a chunked body that carry no data. Extensions have no known use.
const (
	maxChunkLine = 256
	maxTrailer   = 8 << 10
)

// Chunks follows a chunked body (RFC 9112 section 7.1) as it passes, and finds its end. It holds no data: the bytes it
// accepts are sent on as they are, so that the reader behind sees what was judged. The zero value is at the beginning.
type Chunks struct {
	state chunkState
	size  uint64 // of the current chunk, then what is left of it
	line  int    // octets of the current size line
	total int    // octets of the trailer section
	done  bool
}

type chunkState uint8

const (
	chunkSize    chunkState = iota // hexadecimal digits
	chunkExt                       // ";…" up to CR
	chunkSizeLF                    // LF of the size line
	chunkData                      // size octets
	chunkDataCR                    // CR after the data
	chunkDataLF                    // LF after the data
	trailerStart                   // first octet of a trailer line, or CR of the last one
	trailerLine                    // rest of a trailer line
	trailerLF                      // LF of a trailer line
	lastLF                         // LF that ends the body
)

// Done says that the body has ended.
func (c *Chunks) Done() bool { return c.done }

// Feed takes the next bytes and says how many of them belong to the body; the rest is the next request. After an error
// the connection cannot be used further.
func (c *Chunks) Feed(b []byte) (int, error) {
	for n := 0; n < len(b); {
		if c.done {
			return n, nil
		}
		if c.state == chunkData {
			take := min(c.size, uint64(len(b)-n))
			n, c.size = n+int(take), c.size-take
			if c.size == 0 {
				c.state = chunkDataCR
			}
			continue
		}
		if err := c.step(b[n]); err != nil {
			return n, err
		}
		n++
	}
	return len(b), nil
}

func (c *Chunks) step(ch byte) error {
	switch c.state {
	case chunkSize, chunkExt:
		return c.sizeLine(ch)
	case chunkSizeLF:
		if ch != '\n' {
			return bad("a bare carriage return in a chunk size line")
		}
		c.state, c.line = chunkData, 0
		if c.size == 0 {
			c.state = trailerStart
		}
	case chunkDataCR, chunkDataLF:
		want, next := byte('\r'), chunkDataLF
		if c.state == chunkDataLF {
			want, next = '\n', chunkSize
		}
		if ch != want {
			return bad("0x%02x where a chunk ends with CRLF", ch)
		}
		c.state = next
	default:
		return c.trailer(ch)
	}
	return nil
}

// sizeLine refuses a bare LF in an extension, which CVE-2025-22871 is about: one reader ends the line there and takes
// what follows for data.
func (c *Chunks) sizeLine(ch byte) error {
	c.line++
	digit := hexDigit(ch)
	switch {
	case c.line > maxChunkLine:
		return bad("a chunk size line of more than 256 octets")
	case ch == '\r' && c.line > 1:
		c.state = chunkSizeLF
	case ch == '\n':
		return bad("a bare line feed in a chunk size line")
	case c.state == chunkExt:
		if ch < ' ' && ch != '\t' || ch == 0x7f {
			return bad("0x%02x in a chunk extension", ch)
		}
	case digit >= 0:
		if c.line > 15 { // 60 bits are more than any body, and no sum overflows
			return bad("a chunk size of more than 15 digits")
		}
		c.size = c.size<<4 | uint64(digit)
	case ch == ';' && c.line > 1:
		c.state = chunkExt
	default:
		return bad("0x%02x in a chunk size", ch)
	}
	return nil
}

// trailer accepts trailer lines that have the shape of fields. The proxy does not act on them.
func (c *Chunks) trailer(ch byte) error {
	if c.total++; c.total > maxTrailer {
		return &Refusal{431, "a trailer of more than 8 KiB"}
	}
	switch {
	case c.state == lastLF || c.state == trailerLF:
		if ch != '\n' {
			return bad("a bare carriage return in a trailer")
		}
		c.done = c.state == lastLF
		c.state = trailerStart
	case ch == '\r' && c.state == trailerStart:
		c.state = lastLF
	case ch == '\r':
		c.state = trailerLF
	case c.state == trailerStart && !isToken(ch):
		return bad("0x%02x begins no trailer field", ch)
	case ch < ' ' && ch != '\t' || ch == 0x7f:
		return bad("0x%02x in a trailer", ch)
	default:
		c.state = trailerLine
	}
	return nil
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
