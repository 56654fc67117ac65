package main

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options that golang.org/x/sys does not name (include/uapi/linux/in.h, tcp.h, udp.h).
const (
	ipTransparent = 19
	ipFreebind    = 15
	tcpRepair     = 19
	tcpULP        = 31
	udpCork       = 1
	udpSegment    = 103
)

// fastOpens connect by sending, past anything that looks at connect alone.
func fastOpens() []attempt {
	return []attempt{
		{"fastopen-sendto", func(t *target, mark string) error {
			fd, to, err := open(t.Net["far4"], unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, []byte(mark), unix.MSG_FASTOPEN, to)
		}},
		{"fastopen-sendmsg", func(t *target, mark string) error {
			fd, to, err := open(t.Net["far6"], unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendmsg(fd, []byte(mark), nil, to, unix.MSG_FASTOPEN)
		}},
		{"fastopen-connect", func(t *target, mark string) error {
			return streamBy(t.Net["far4"], 0, func(fd int) error {
				return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
			}, mark)
		}},
		{"fastopen-mptcp", func(t *target, mark string) error {
			fd, to, err := open(t.Net["far4"], unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, []byte(mark), unix.MSG_FASTOPEN, to)
		}},
	}
}

// options ask the kernel to route differently.
func options() []attempt {
	udp := func(name string, prepare func(fd int) error) attempt {
		return attempt{name, func(t *target, mark string) error { return sendBy(t.Net["udp-far4"], prepare, []byte(mark)) }}
	}
	udp6 := func(name string, prepare func(fd int) error) attempt {
		return attempt{name, func(t *target, mark string) error { return sendBy(t.Net["udp-far6"], prepare, []byte(mark)) }}
	}
	set := func(level, option, value int) func(int) error {
		return func(fd int) error { return unix.SetsockoptInt(fd, level, option, value) }
	}
	foreign := &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 77}}
	return []attempt{
		{"bind-device", func(t *target, mark string) error {
			return eachInterface(func(_ int, name string) error {
				return sendBy(t.Net["udp-far4"], func(fd int) error { return unix.BindToDevice(fd, name) }, []byte(mark))
			})
		}},
		{"bind-device-lo", func(t *target, mark string) error {
			return sendBy(t.Net["udp-far4"], func(fd int) error { return unix.BindToDevice(fd, "lo") }, []byte(mark))
		}},
		udp("bind-foreign", func(fd int) error { return unix.Bind(fd, foreign) }),
		udp("freebind", func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, ipFreebind, 1), unix.Bind(fd, foreign))
		}),
		udp("transparent", func(fd int) error {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, ipTransparent, 1); err != nil {
				return err
			}
			return unix.Bind(fd, foreign)
		}),
		udp("mark", set(unix.SOL_SOCKET, unix.SO_MARK, 1)),
		udp("dont-route", set(unix.SOL_SOCKET, unix.SO_DONTROUTE, 1)),
		udp("source-route", func(fd int) error { // loose source routing (RFC 791 section 3.1)
			return unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string([]byte{131, 7, 4, 203, 0, 113, 9, 0}))
		}),
		udp6("routing-header", func(fd int) error { // type 0 (RFC 5095), which nobody should take any more
			h := append([]byte{0, 2, 0, 1, 0, 0, 0, 0}, []byte{0x20, 0x01, 0x0d, 0xb8, 15: 9}...)
			return unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_RTHDR, string(h))
		}),
		udp6("hop-options", func(fd int) error {
			return unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, string([]byte{0, 0, 1, 4, 0, 0, 0, 0}))
		}),
		{"packet-info", func(t *target, mark string) error {
			return eachInterface(func(index int, _ string) error {
				fd, to, err := open(t.Net["udp-far4"], unix.SOCK_DGRAM, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return unix.Sendmsg(fd, []byte(mark), unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(index)}), to, 0)
			})
		}},
		{"tcp-ulp", func(t *target, mark string) error {
			return streamBy(t.Net["far4"], 0, func(fd int) error { return unix.SetsockoptString(fd, unix.IPPROTO_TCP, tcpULP, "espintcp") }, mark)
		}},
		{"tcp-repair", func(t *target, mark string) error { // a connection without a handshake
			return streamBy(t.Net["far4"], 0, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRepair, 1) }, mark)
		}},
	}
}

// addressTricks give a socket one address and send to another.
func addressTricks() []attempt {
	near := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
	unspec := func(fd int) error {
		raw := unix.RawSockaddrAny{}
		return call(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw)), 16)
	}
	return []attempt{
		{"connected-elsewhere", func(t *target, mark string) error {
			return sendBy(t.Net["udp-far4"], func(fd int) error { return unix.Connect(fd, near) }, []byte(mark))
		}},
		{"disconnected", func(t *target, mark string) error {
			return sendBy(t.Net["udp-far4"], func(fd int) error { return errors.Join(unix.Connect(fd, near), unspec(fd)) }, []byte(mark))
		}},
		{"stream-disconnected", func(t *target, mark string) error { // a stream that was connected inside before
			l, port, err := ownListener()
			if err != nil {
				return err
			}
			defer unix.Close(l)
			return streamBy(t.Net["far4"], 0, func(fd int) error {
				return errors.Join(unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: near.Addr}), unspec(fd))
			}, mark)
		}},
		{"unspecified-family", func(t *target, mark string) error { // AF_UNSPEC is taken for AF_INET (udp_sendmsg)
			to, _, err := sockaddr(t.Net["udp-far4"])
			if err != nil {
				return err
			}
			a := to.(*unix.SockaddrInet4)
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			raw := raw4(a)
			raw.Family = unix.AF_UNSPEC
			data := []byte(mark)
			return call(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), 0, uintptr(unsafe.Pointer(&raw)), unix.SizeofSockaddrInet4)
		}},
	}
}

func ownListener() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1))
	sa, nameErr := unix.Getsockname(fd)
	if err = errors.Join(err, nameErr); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, sa.(*unix.SockaddrInet4).Port, nil
}

// connected writes to a datagram socket that has a peer.
func connected(name string, write func(fd int, mark string) error) attempt {
	return attempt{name, func(t *target, mark string) error {
		fd, to, err := open(t.Net["udp-far4"], unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, to); err != nil {
			return err
		}
		return write(fd, mark)
	}}
}

// writes get bytes into a socket by other calls than send.
func writes() []attempt {
	return []attempt{
		connected("corked", func(fd int, mark string) error {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, udpCork, 1); err != nil {
				return err
			}
			_, err := unix.Write(fd, []byte(mark))
			return errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, udpCork, 0))
		}),
		connected("segmented", func(fd int, mark string) error {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, udpSegment, len(mark)); err != nil {
				return err
			}
			_, err := unix.Write(fd, []byte(mark+mark))
			return err
		}),
		connected("zero-copy", func(fd int, mark string) error {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != nil {
				return err
			}
			return unix.Sendmsg(fd, []byte(mark), nil, nil, unix.MSG_ZEROCOPY)
		}),
		connected("splice", func(fd int, mark string) error {
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			defer unix.Close(pipe[0])
			defer unix.Close(pipe[1])
			if _, err := unix.Write(pipe[1], []byte(mark)); err != nil {
				return err
			}
			_, err := unix.Splice(pipe[0], nil, fd, nil, len(mark), 0)
			return err
		}),
		connected("sendfile", func(fd int, mark string) error {
			f, err := os.CreateTemp("", "smuggler")
			if err != nil {
				return err
			}
			defer os.Remove(f.Name())
			defer f.Close()
			if _, err := f.WriteString(mark); err != nil {
				return err
			}
			var at int64
			_, err = unix.Sendfile(fd, int(f.Fd()), &at, len(mark))
			return err
		}),
		connected("vectors", func(fd int, mark string) error {
			_, err := unix.Writev(fd, [][]byte{[]byte(mark[:9]), []byte(mark[9:])})
			return err
		}),
	}
}

func raw4(a *unix.SockaddrInet4) unix.RawSockaddrInet4 {
	return unix.RawSockaddrInet4{Family: unix.AF_INET, Port: uint16(a.Port>>8 | a.Port<<8&0xff00), Addr: a.Addr}
}

func sendmmsg(address, mark string) error {
	to, _, err := sockaddr(address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	raw := raw4(to.(*unix.SockaddrInet4))
	data := []byte(mark)
	vec := unix.Iovec{Base: &data[0]}
	vec.SetLen(len(data))
	type message struct {
		unix.Msghdr
		sent uint32
		_    uint32
	}
	msg := message{Msghdr: unix.Msghdr{Name: (*byte)(unsafe.Pointer(&raw)), Namelen: unix.SizeofSockaddrInet4, Iov: &vec}}
	msg.SetIovlen(1)
	return call(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), 1, 0)
}

// call is a system call by number.
func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}
