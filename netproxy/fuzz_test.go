package netproxy

import (
	"io"
	"net"
	"testing"
	"time"

	"coworker/netproxy/control"
)

// Whatever a client says, the proxy answers and ends; a panic would end the process.
func FuzzClient(f *testing.F) {
	for _, s := range []string{
		get("a.example"), get("evil.example"), "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x50GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + get("a.example"),
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes", connectRaw + "bytes",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	w := newWorld(f, control.Config{Allow: []string{"a.example", "a.example:80", "raw.example:9000"}}, nil)
	w.serveRaw(liveOrigin{})
	w.redirect("a.example", 80)
	f.Fuzz(func(t *testing.T, b []byte, clear bool) {
		to := w.proxy
		if clear {
			to = w.clear
		}
		c, err := net.Dial("tcp4", to)
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		c.Write(b)
		c.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, c); err != nil && isTimeout(err) {
			t.Fatalf("%q: no end", b)
		}
	})
}

func isTimeout(err error) bool { return timely(err) == errHeadTime }
