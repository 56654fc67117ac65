package main

import (
	"fmt"
	"net/http"

	"golang.org/x/sys/unix"
)

// attempts are system calls that no small command makes. Each returns nil when it worked, and
// leaves the machine as it was.
var attempts = map[string]func(arg string) error{
	"truncate":   truncate,
	"truncate-3": truncateByOpen,
	"set-clock":  setClock,
	"kexec":      unloadKexec,
	"abstract":   connectAbstract,
	"get":        func(url string) error { return get(url, nil) },
	"get-proxy":  func(url string) error { return get(url, http.ProxyFromEnvironment) },
	"look-up":    lookUp,
}

// truncate cuts a file to the length it has.
func truncate(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return err
	}
	return unix.Truncate(file, st.Size)
}

// truncateByOpen empties a file through a descriptor that can neither read nor write, open(2).
func truncateByOpen(file string) error {
	fd, err := unix.Open(file, unix.O_ACCMODE|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func setClock(string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

// unloadKexec loads a kernel of no segments, which is how one is unloaded, kexec_load(2).
func unloadKexec(string) error {
	if _, _, errno := unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// connectAbstract connects to a socket in the abstract namespace.
func connectAbstract(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name})
}

// listenAbstract holds a socket open until the process is killed.
func listenAbstract(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		return err
	}
	if err := unix.Listen(fd, 8); err != nil {
		return err
	}
	fmt.Println("listening")
	return unix.Pause()
}
