package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/egress/marker"
)

// capture looks into every frame of all interfaces of one network namespace (packet(7)), both ways.
type capture struct {
	what   string
	finder *marker.Finder
	fd     int
	wake   int // eventfd that ends it
	done   sync.WaitGroup

	mu    sync.Mutex
	seen  map[string]string // attempt → where and in which frame its marker was first
	frame int
	err   error
}

// swap16 is htons on the little-endian machines that we build for, and right on others too.
func swap16(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// newCapture starts one in the namespace of the calling thread. It must be closed.
func newCapture(what string, finder *marker.Finder) (*capture, error) {
	c := &capture{what: what, finder: finder, seen: map[string]string{}}
	var err error
	if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(swap16(unix.ETH_P_ALL))); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if c.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(err, unix.Close(c.fd))
	}
	// Room for everything that an attempt of ten megabytes puts on the wire at once.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20); err != nil {
		return nil, errors.Join(fmt.Errorf("receive buffer: %w", err), unix.Close(c.fd), unix.Close(c.wake))
	}
	c.done.Go(c.read)
	return c, nil
}

func (c *capture) read() {
	buf := make([]byte, 1<<17)
	for {
		n, from, err := unix.Recvfrom(c.fd, buf, unix.MSG_TRUNC)
		switch {
		case err == nil:
			c.look(buf[:min(n, len(buf))], from)
			if n <= len(buf) {
				continue
			}
			err = fmt.Errorf("a frame of %d bytes", n)
		case err == unix.EINTR, err == unix.ENETDOWN: // an attempt took an interface down
			continue
		case err == unix.EAGAIN:
			fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}, {Fd: int32(c.wake), Events: unix.POLLIN}}
			if _, err = unix.Poll(fds, -1); err == nil && fds[1].Revents != 0 {
				return
			}
			if err == nil || err == unix.EINTR {
				continue
			}
		}
		c.mu.Lock()
		c.err = errors.Join(c.err, err)
		c.mu.Unlock()
		return
	}
}

func (c *capture) look(frame []byte, from unix.Sockaddr) {
	found := c.finder.Find(frame)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame++
	for _, name := range found {
		if _, known := c.seen[name]; !known {
			index := 0
			if ll, ok := from.(*unix.SockaddrLinklayer); ok {
				index = ll.Ifindex
			}
			c.seen[name] = fmt.Sprintf("%s, interface %d, frame %d of %d bytes: %.80q", c.what, index, c.frame, len(frame), frame)
		}
	}
}

// has says whether a marker was seen.
func (c *capture) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name] != ""
}

// await waits until a marker has been seen: all frames before it have been looked at then.
func (c *capture) await(t testing.TB, name string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !c.has(name); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("%s: the word of %q did not come by: the capture shows nothing", c.what, name)
			return
		}
	}
}

// close ends the capture and returns what it saw. A frame that the kernel dropped is an error: it was not looked at.
func (c *capture) close() (map[string]string, error) {
	if _, err := unix.Write(c.wake, []byte{1, 0, 0, 0, 0, 0, 0, 1}); err != nil {
		return nil, err
	}
	c.done.Wait()
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("%s: the kernel dropped %d of %d frames", c.what, stats.Drops, stats.Packets)
	}
	return c.seen, errors.Join(c.err, err, unix.Close(c.fd), unix.Close(c.wake))
}

// descendants lists the processes below one, sorted.
func descendants(of int) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, dir := range entries {
		data, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	var below []int
	for pid := range parents {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == of {
				below = append(below, pid)
				break
			}
		}
	}
	slices.Sort(below)
	return below, nil
}

// cellNamespace finds the network namespace of the cell that a process of coworker started.
func cellNamespace(coworker int) (*os.File, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", coworker))
	if err != nil {
		return nil, err
	}
	below, err := descendants(coworker)
	if err != nil {
		return nil, err
	}
	for _, pid := range below {
		name := fmt.Sprintf("/proc/%d/ns/net", pid)
		if link, err := os.Readlink(name); err == nil && link != own {
			return os.Open(name)
		}
	}
	return nil, fmt.Errorf("none of the processes %v below %d is in a network namespace of its own", below, coworker)
}
