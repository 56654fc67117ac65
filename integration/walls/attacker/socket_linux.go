package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unixSockets reach for local daemons: their sockets lie where such programs put them, or have no file at all.
func unixSockets() []attempt {
	var all []attempt
	for _, name := range []string{"docker", "bus", "agent", "tmux", "work"} {
		all = append(all, attempt{"socket:" + name, func(t *target) error { return connectUnix(t.Sockets[name], unix.SOCK_STREAM) }})
	}
	return append(all,
		attempt{"socket-abstract", func(t *target) error { return connectUnix(t.Sockets["abstract"], unix.SOCK_STREAM) }},
		attempt{"socket-datagram", func(t *target) error { return sendUnix(t.Sockets["datagram"], unix.SYS_SENDTO) }},
		attempt{"socket-datagram-abstract", func(t *target) error { return sendUnix(t.Sockets["datagram-abstract"], unix.SYS_SENDTO) }},
		attempt{"socket-sendmsg", func(t *target) error { return sendUnix(t.Sockets["datagram"], unix.SYS_SENDMSG) }},
		attempt{"socket-sendmmsg", func(t *target) error { return sendUnix(t.Sockets["datagram"], unix.SYS_SENDMMSG) }},
		attempt{"socket-proc-root", func(t *target) error { return connectUnix("/proc/self/root"+t.Sockets["docker"], unix.SOCK_STREAM) }},
		attempt{"socket-short", func(t *target) error { return shortAddress(t.Sockets["docker"]) }},
		attempt{"socket-by-link", func(t *target) error {
			link := filepath.Join(t.Scratch, "s")
			if err := symlink(t.Sockets["docker"], link); err != nil {
				return err
			}
			return connectUnix(link, unix.SOCK_STREAM)
		}},
		attempt{"socket-move", func(t *target) error {
			moved := filepath.Join(t.Scratch, "s")
			if err := unix.Rename(t.Sockets["work"], moved); err != nil {
				return err
			}
			return connectUnix(moved, unix.SOCK_STREAM)
		}},
		attempt{"passed-descriptor", passDescriptor},
	)
}

func unixAddress(name string) *unix.SockaddrUnix { return &unix.SockaddrUnix{Name: name} }

func connectUnix(name string, kind int) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Names in a deep folder are longer than an address: go by a descriptor, as an attacker would.
	if len(name) > 100 {
		dir, err := unix.Open(filepath.Dir(name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		name = fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(name))
	}
	return unix.Connect(fd, unixAddress(name))
}

func sendUnix(name string, how uintptr) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var raw unix.RawSockaddrUnix
	raw.Family = unix.AF_UNIX
	for i, c := range []byte(name) {
		raw.Path[i] = int8(c)
	}
	size := uint32(2 + len(name) + 1)
	if strings.HasPrefix(name, "@") {
		raw.Path[0] = 0
		size--
	}
	return sendRaw(fd, how, unsafe.Pointer(&raw), size, 0)
}

// sendRaw sends one datagram by the call that is asked for.
func sendRaw(fd int, how uintptr, addr unsafe.Pointer, size uint32, flags uintptr) error {
	payload := []byte("attacker")
	if how == unix.SYS_SENDTO {
		return call(how, uintptr(fd), uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), flags, uintptr(addr), uintptr(size))
	}
	vec := unix.Iovec{Base: &payload[0], Len: uint64(len(payload))}
	type message struct {
		unix.Msghdr
		sent uint32
		_    uint32
	}
	msg := message{Msghdr: unix.Msghdr{Name: (*byte)(addr), Namelen: size, Iov: &vec, Iovlen: 1}}
	if how == unix.SYS_SENDMSG {
		return call(how, uintptr(fd), uintptr(unsafe.Pointer(&msg.Msghdr)), flags)
	}
	return call(how, uintptr(fd), uintptr(unsafe.Pointer(&msg)), 1, flags)
}

// shortAddress connects with an address whose length ends within the path and one that has no final NUL: a check that
// copies strings would read another name than the kernel.
func shortAddress(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var raw unix.RawSockaddrUnix
	raw.Family = unix.AF_UNIX
	for i, c := range []byte(name) {
		raw.Path[i] = int8(c)
	}
	return call(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(2+len(name)))
}

// passDescriptor sends itself a descriptor of a masked file through a socket pair: what is inside can only pass what
// it has.
func passDescriptor(t *target) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	fd, err := unix.Open(filepath.Join(t.Work, ".env"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		return errors.New("no descriptor came")
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(got) == 0 {
		return errors.Join(err, errors.New("no descriptor came"))
	}
	defer unix.Close(got[0])
	return read(fmt.Sprintf("/proc/self/fd/%d", got[0]))
}
