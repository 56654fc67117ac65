package clients

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// servePostgres speaks as much of the PostgreSQL protocol, version 3, as psql needs for one query ("Message Formats").
func (w *world) servePostgres(t *testing.T) {
	t.Helper()
	acceptAll(t, w.listen(t, "5432"), func(conn net.Conn) {
		in := bufio.NewReader(conn)
		if !postgresLogin(in, conn) {
			return
		}
		for {
			kind, err := in.ReadByte()
			if err != nil || kind == 'X' {
				return
			}
			if _, ok := postgresBody(in); !ok {
				return
			}
			column := append([]byte("\x00\x01text\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff"), 0, 0)
			value := binary.BigEndian.AppendUint32([]byte{0, 1}, uint32(len(greeting)))
			conn.Write(postgresMessage('T', column))
			conn.Write(postgresMessage('D', append(value, greeting...)))
			conn.Write(postgresMessage('C', []byte("SELECT 1\x00")))
			conn.Write(postgresMessage('Z', []byte("I")))
		}
	})
}

// postgresLogin refuses TLS and GSS encryption and lets everybody in.
func postgresLogin(in io.Reader, out io.Writer) bool {
	for {
		body, ok := postgresBody(in)
		if !ok || len(body) < 4 {
			return false
		}
		if code := binary.BigEndian.Uint32(body); code != 80877103 && code != 80877104 { // SSLRequest, GSSENCRequest
			break
		}
		io.WriteString(out, "N")
	}
	out.Write(postgresMessage('R', []byte{0, 0, 0, 0}))
	out.Write(postgresMessage('S', []byte("server_version\x0015.0\x00")))
	_, err := out.Write(postgresMessage('Z', []byte("I")))
	return err == nil
}

func postgresBody(in io.Reader) ([]byte, bool) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return nil, false
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 1<<16 {
		return nil, false
	}
	body := make([]byte, n-4)
	_, err := io.ReadFull(in, body)
	return body, err == nil
}

func postgresMessage(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}
