package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// dial opens a connection that leads to the origin: through a tunnel, or by name.
func (c *client) dial() (net.Conn, error) {
	to := c.authority()
	if c.Proxy != "" {
		to = c.Proxy
	}
	conn, err := net.DialTimeout("tcp", to, 30*time.Second)
	if err != nil {
		return nil, err
	}
	if err = c.open(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if c.secure() {
		return tls.Client(conn, c.tls), nil
	}
	return conn, nil
}

// open asks for a tunnel. A plain page is asked of the proxy itself.
func (c *client) open(conn net.Conn) error {
	if c.Proxy == "" || c.Kind == "http" || c.Kind == "download" && c.Port == 80 {
		return nil
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", c.authority()); err != nil {
		return err
	}
	// Octet by octet would cost more than the proxy: nothing follows the answer unasked, so one buffer is enough.
	var buf [1024]byte
	n := 0
	for !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
		got, err := conn.Read(buf[n:])
		if n += got; err != nil || n == len(buf) {
			return fmt.Errorf("answer to CONNECT %q: %w", buf[:n], err)
		}
	}
	if !bytes.HasPrefix(buf[:n], []byte("HTTP/1.1 200")) && !bytes.HasPrefix(buf[:n], []byte("HTTP/1.0 200")) {
		return fmt.Errorf("answer to CONNECT: %q", buf[:n])
	}
	return nil
}

func (c *client) text(keep bool) []byte {
	target := c.Path
	if c.Proxy != "" && (c.Kind == "http" || c.Kind == "download" && c.Port == 80) {
		target = "http://" + c.Host + c.Path
	}
	head := "GET " + target + " HTTP/1.1\r\nHost: " + c.Host + "\r\nUser-Agent: load\r\nAccept: */*\r\n"
	if !keep {
		head += "Connection: close\r\n"
	}
	return []byte(head + "\r\n")
}

// requests runs the workers for the time of the job.
func (c *client) requests() *result {
	end := time.Now().Add(time.Duration(c.Seconds * float64(time.Second)))
	out := &result{}
	var all []time.Duration
	var mu sync.Mutex
	var wait sync.WaitGroup
	begun := time.Now()
	for range max(c.Workers, 1) {
		wait.Go(func() {
			times, err := c.worker(end)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, times...)
			if err != nil {
				if out.Errors++; out.Error == "" {
					out.Error = err.Error()
				}
			}
		})
	}
	wait.Wait()
	out.Requests = len(all)
	out.Rate = float64(len(all)) / time.Since(begun).Seconds()
	if len(all) > 0 {
		slices.Sort(all)
		out.P50, out.P99 = millis(all[len(all)/2]), millis(all[len(all)*99/100])
	}
	return out
}

// worker repeats until the end. It stops at the first error: an error is a finding, not noise.
func (c *client) worker(end time.Time) ([]time.Duration, error) {
	fresh := c.Kind == "tls-new" || c.Kind == "raw-new"
	w := &line{c: c, text: c.text(!fresh), reader: bufio.NewReaderSize(nil, 4<<10)}
	defer w.close()
	var times []time.Duration
	for time.Now().Before(end) {
		begun := time.Now()
		used := w.conn != nil
		last, err := w.ask()
		if err != nil && used { // a server may close a kept connection at any time (RFC 9112 section 9.3.1)
			w.close()
			last, err = w.ask()
		}
		if err != nil {
			return times, err
		}
		if fresh || last {
			w.close()
		}
		times = append(times, time.Since(begun))
	}
	return times, nil
}

// line is one worker's connection.
type line struct {
	c      *client
	text   []byte
	conn   net.Conn // nil: none is open
	reader *bufio.Reader
}

// ask makes one request and says whether its answer is the last on the connection.
func (w *line) ask() (last bool, err error) {
	if w.conn == nil {
		if w.conn, err = w.c.dial(); err != nil {
			return true, err
		}
		w.reader.Reset(w.conn)
	}
	if _, err := w.conn.Write(w.text); err != nil {
		return true, err
	}
	return answer(w.reader)
}

func (w *line) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// answer reads one answer and says whether it is the last on its connection.
func answer(r *bufio.Reader) (last bool, err error) {
	n, last, err := head(r)
	if err != nil {
		return true, err
	}
	_, err = io.CopyN(io.Discard, r, n)
	return last, err
}

// head reads the head of an answer and gives its Content-Length.
func head(r *bufio.Reader) (length int64, last bool, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, true, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && !bytes.Contains(line, []byte(" 200")) {
			return 0, true, fmt.Errorf("answer %q", line)
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return 0, true, err
			}
		case bytes.EqualFold(name, []byte("connection")):
			last = bytes.EqualFold(value, []byte("close"))
		}
	}
	if length < 0 {
		return 0, true, errors.New("an answer without Content-Length")
	}
	return length, last, nil
}

// download fetches one long body.
func (c *client) download() (*result, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if t, ok := conn.(*tls.Conn); ok {
		if err := t.Handshake(); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	if _, err := conn.Write(c.text(true)); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 4<<10)
	n, _, err := head(r)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 256<<10)
	for left := n; left > 0; {
		got, err := r.Read(buf)
		if left -= int64(got); err != nil && left > 0 {
			return nil, fmt.Errorf("%d of %d octets left: %w", left, n, err)
		}
	}
	if n != c.Bytes {
		return nil, fmt.Errorf("%d octets, want %d", n, c.Bytes)
	}
	took := time.Since(begun)
	return &result{MBps: float64(n) / 1e6 / took.Seconds(), Requests: 1, P50: millis(took)}, nil
}
