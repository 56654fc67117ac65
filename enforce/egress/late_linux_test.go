package egress

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// loopbackUp gives the namespace a loopback, with an address of somewhere else on it.
func loopbackUp() error {
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", far4.String() + "/32", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// late connects two sockets, sends on both, and sends again when it is told to.
func late(lines *bufio.Reader) {
	if err := loopbackUp(); err != nil {
		fmt.Println(err)
		return
	}
	fds := map[string]int{}
	for name, host := range map[string]string{"far": far4.String(), "loopback": "127.0.0.1"} {
		server, err := net.ListenPacket("udp4", net.JoinHostPort(host, "0"))
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err == nil {
			sa := &unix.SockaddrInet4{Port: server.LocalAddr().(*net.UDPAddr).Port}
			copy(sa.Addr[:], net.ParseIP(host).To4())
			err = unix.Connect(fd, sa)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fds[name] = fd
	}
	for {
		out := map[string]string{}
		for name, fd := range fds {
			_, err := unix.Write(fd, []byte("x"))
			out[name] = errnoText(err)
		}
		json.NewEncoder(os.Stdout).Encode(out)
		if _, err := lines.ReadString('\n'); err != nil {
			return
		}
	}
}

const chunk = 64 << 10

// measure does something n times on the loopback.
func measure(arg string) {
	var what string
	var n int
	_, err := fmt.Sscanf(arg, "%s %d", &what, &n)
	if err == nil {
		err = loopbackUp()
	}
	var server net.Listener
	if err == nil {
		server, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	if err := load(server.Addr().String(), what, n); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("done")
}

func load(addr, what string, n int) error {
	if what == "bytes" {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		data := make([]byte, chunk)
		for range n {
			if _, err := c.Write(data); err != nil {
				return err
			}
		}
		return nil
	}
	for range n {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			return err
		}
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	return nil
}
