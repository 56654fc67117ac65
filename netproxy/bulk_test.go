package netproxy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

// random octets, so that a piece at the wrong place shows.
func random(t testing.TB, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// Octets come out as they went in, in both directions at once, around every size at which the way of passing them changes.
func TestBulkTunnel(t *testing.T) {
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) { io.Copy(c, onlyReader{c}) })
	for _, size := range []int{1, moveAgain - 1, moveAgain, moveAgain + 1, bulkSize, bulkSize + 1, 300_001, 9 << 20} {
		sent := random(t, size)
		c, in := w.tunnel(connectRaw)
		var send sync.WaitGroup
		send.Go(func() {
			c.Write(sent)
			c.CloseWrite()
		})
		got, err := io.ReadAll(in)
		send.Wait()
		c.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d octets: %d came back, equal %v, %v", size, len(got), bytes.Equal(got, sent), err)
		}
		w.record(func(r flow.Record) bool {
			return r.BytesIn == int64(size) && r.BytesOut == int64(size) && r.Broken == ""
		})
	}
}

// A long answer is followed by another one on the same connection.
func TestLongBody(t *testing.T) {
	w := newWorld(t, control.Config{Allow: []string{"a.example:80"}}, nil)
	body := random(t, 5<<20)
	w.origin(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		rw.Header().Set("Content-Length", strconv.Itoa(n))
		rw.Write(body[:n])
	}))
	c := w.client(w.proxy)
	in := bufio.NewReader(c)
	for _, n := range []int{len(body), 1, worthMoving - 1, worthMoving, worthMoving + 1, 0, len(body)} {
		_, got := w.exchange(c, in, "GET http://a.example/?n="+strconv.Itoa(n)+" HTTP/1.1\r\nHost: a.example\r\n\r\n")
		if got != string(body[:n]) {
			t.Errorf("%d octets of %d, and equal %v", len(got), n, got == string(body[:n]))
		}
	}
	if r := w.record(func(r flow.Record) bool { return r.BytesIn > int64(len(body)) }); r.Status != 200 || r.Broken != "" {
		t.Errorf("%+v", r)
	}
}

// An answer that breaks off must not look complete, and a client that leaves ends the origin's work.
func TestLongBodyCut(t *testing.T) {
	const announced = 64 << 20
	left := make(chan error, 2)
	w := rawWorld(t, control.Limits{}, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(announced)+"\r\n\r\n")
		sent := 1 << 20
		if r.URL.Path == "/all" {
			sent = announced
		}
		_, err = c.Write(make([]byte, sent))
		left <- err
	})
	get := func(path string) io.Reader {
		c := w.client(w.proxy)
		io.WriteString(c, "GET http://a.example"+path+" HTTP/1.1\r\nHost: a.example\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/all" {
			io.CopyN(io.Discard, r.Body, 1<<20)
			c.Close()
		}
		return r.Body
	}
	if n, err := io.Copy(io.Discard, get("/cut")); n != 1<<20 || err != io.ErrUnexpectedEOF {
		t.Errorf("cut: %d octets, %v", n, err)
	}
	<-left
	if r := w.record(func(r flow.Record) bool { return r.Path == "/cut" }); r.Broken == "" {
		t.Errorf("%+v", r)
	}
	get("/all")
	if <-left == nil {
		t.Error("the origin sent everything to a client that had left")
	}
	if r := w.record(func(r flow.Record) bool { return r.Path == "/all" }); r.Broken == "" {
		t.Errorf("%+v", r)
	}
}
