package gitobject

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
)

// metered charges what is read: a stream of empty stored blocks (RFC 1951, 3.2.4) inflates to nothing for ever.
type metered struct {
	r io.Reader
	s *search
}

func (m metered) Read(p []byte) (int, error) {
	if err := m.s.charge(int64(len(p))); err != nil {
		return 0, err
	}
	return m.r.Read(p)
}

// matches inflates r and compares it with want, piece by piece. It never holds or makes more than want and a buffer,
// and reads to the end of the stream, where zlib's checksum is.
func (s *search) matches(r io.Reader, want ...[]byte) (bool, error) {
	z, err := zlib.NewReader(metered{r, s})
	if err != nil {
		return false, damaged(err)
	}
	defer z.Close()
	buf := make([]byte, 32<<10)
	for _, rest := range want {
		for len(rest) > 0 {
			n, err := io.ReadFull(z, buf[:min(len(buf), len(rest))])
			if err := s.charge(int64(n)); err != nil {
				return false, err
			}
			if err != nil || !bytes.Equal(buf[:n], rest[:n]) {
				return false, damaged(err)
			}
			rest = rest[n:]
		}
	}
	if n, err := io.ReadFull(z, buf[:1]); n != 0 || err != io.EOF {
		return false, damaged(err)
	}
	return true, nil
}

// inflate returns exactly size bytes, of a stream that has no more.
func (s *search) inflate(r io.Reader, size int64) ([]byte, error) {
	if size > MaxContent {
		return nil, fmt.Errorf("an object of %d bytes in a delta chain: %w", size, ErrWork)
	}
	if err := s.charge(size); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(metered{r, s})
	if err != nil {
		return nil, damaged(err)
	}
	defer z.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, damaged(err)
	}
	if n, err := io.ReadFull(z, make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, fmt.Errorf("an object longer than the %d bytes it announces: %w", size, ErrFormat)
	}
	return data, nil
}

// damaged names a broken stream. nil stays nil: bytes that differ are no damage.
func damaged(err error) error {
	if err == nil || errors.Is(err, ErrWork) {
		return err
	}
	return fmt.Errorf("inflate an object: %w: %w", ErrFormat, err)
}
