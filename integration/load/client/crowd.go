package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// crowd makes Count connections at once, says "held" in a line of its own, and waits for a line or the end of its input.
//
//	tunnels  a tunnel each to an origin that sends everything back; data passes at the beginning and at the end
//	slow     half a head each, which never becomes a whole one
//	resets   a tunnel each that is reset in the middle of data; none is left to hold
//
// The kind tunnels-each holds nothing and says nothing: a tunnel with data, and the next one.
func (c *client) crowd() (*result, error) {
	step := map[string]func() (net.Conn, error){"tunnels": c.tunnel, "slow": c.half, "resets": c.reset, "tunnels-each": c.brief}[c.Kind]
	out := &result{}
	held := make([]net.Conn, c.Count)
	c.each(out, held, func(i int) (err error) { held[i], err = step(); return err })
	if c.Kind == "tunnels-each" {
		return out, nil
	}
	if c.During != nil {
		var err error
		if out.During, err = c.During.run(); err != nil {
			return nil, err
		}
	}
	fmt.Println("held")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil && err != io.EOF {
		return nil, err
	}
	if c.Kind == "tunnels" {
		c.each(out, held, func(i int) error {
			if held[i] == nil {
				return nil
			}
			defer held[i].Close()
			if err := exchange(held[i], i); err != nil {
				return err
			}
			return finish(held[i])
		})
		return out, nil
	}
	for _, conn := range held {
		if conn != nil {
			conn.Close()
		}
	}
	return out, nil
}

func (c *client) brief() (net.Conn, error) {
	conn, err := c.tunnel()
	if err != nil {
		return nil, err
	}
	return nil, conn.Close()
}

// each calls f for every connection, with as many workers as the job has.
func (c *client) each(out *result, held []net.Conn, f func(int) error) {
	next := make(chan int)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range max(c.Workers, 1) {
		wait.Go(func() {
			for i := range next {
				err := f(i)
				mu.Lock()
				if err != nil {
					if out.Errors++; out.Error == "" {
						out.Error = err.Error()
					}
				} else {
					out.Requests++
				}
				mu.Unlock()
			}
		})
	}
	for i := range held {
		next <- i
	}
	close(next)
	wait.Wait()
}

func (c *client) tunnel() (net.Conn, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	if err := exchange(conn, os.Getpid()); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// exchange sends a block that tells n, and wants it back.
func exchange(conn net.Conn, n int) error {
	block := bytes.Repeat([]byte{byte(n), byte(n >> 8), 'x'}, 512)
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write(block); err != nil {
		return err
	}
	got := make([]byte, len(block))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, block) {
		return fmt.Errorf("other octets came back")
	}
	return nil
}

// finish ends a tunnel in good order and waits until the other end has done so too.
func finish(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.CloseWrite(); err != nil {
		return err
	}
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%d octets and %v where the tunnel ends", n, err)
	}
	return nil
}

func (c *client) half() (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", c.Proxy, 30*time.Second)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nX-Slow: ", c.authority())
	return conn, err
}

func (c *client) reset() (net.Conn, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(make([]byte, 32<<10)); err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetLinger(0)
	}
	conn.Close()
	return nil, err
}
