package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// unixWays reach for processes of the host that would pass the marker on.
func unixWays() []attempt {
	var all []attempt
	for _, name := range []string{"abstract", "work", "outside"} {
		all = append(all, attempt{"unix-" + name, func(t *target, mark string) error {
			fd, err := connectUnix(t.Sockets[name])
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.Write(fd, []byte(mark))
			return err
		}})
	}
	return append(all,
		attempt{"unix-passed-socket", func(t *target, mark string) error { return passed(t.Sockets["passer"], mark) }},
		attempt{"unix-passed-socket-abstract", func(t *target, mark string) error { return passed(t.Sockets["passer-abstract"], mark) }},
		attempt{"unix-proc-root", func(t *target, mark string) error {
			return anyOf(
				func() error { return passed("/proc/1/root"+t.Sockets["outside"], mark) },
				func() error { return passed(fmt.Sprintf("/proc/%d/root%s", t.Pid, t.Sockets["outside"]), mark) },
				func() error { return passed("/proc/self/root"+t.Sockets["outside"], mark) })
		}})
}

func connectUnix(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if len(name) > 100 { // longer than an address: go by a descriptor
		dir, err := unix.Open(filepath.Dir(name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		defer unix.Close(dir)
		name = fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(name))
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// passed takes a socket of the host's namespace from somebody who gives it away (SCM_RIGHTS), and sends with it.
func passed(name, mark string) error {
	fd, err := connectUnix(name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
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
	_, err = unix.Write(got[0], []byte(mark))
	return err
}

// descriptors look for sockets that somebody left open: in this process, and in others of the session.
func descriptors() []attempt {
	return []attempt{
		{"inherited-descriptors", func(_ *target, mark string) error {
			names, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return err
			}
			for _, entry := range names {
				fd, err := strconv.Atoi(entry.Name())
				if err != nil || fd <= 2 { // the streams of the session lead to the person
					continue
				}
				kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
				if err != nil {
					continue
				}
				unix.Write(fd, []byte(mark))
				return fmt.Errorf("descriptor %d is a socket of type %d: %w", fd, kind, unix.EISCONN)
			}
			return errors.New("no socket was left open")
		}},
		{"foreign-descriptors", func(*target, string) error { return otherProcesses() }},
		{"descriptor-of-parent", func(*target, string) error {
			return anyOf(func() error { return takeDescriptors(1) }, func() error { return takeDescriptors(os.Getppid()) })
		}},
	}
}

// otherProcesses takes a socket of any process that can be seen but this one. Nothing is written to it: it may be anybody's.
func otherProcesses() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	errs := []error{errors.New("no foreign socket")}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, fd := range fds {
			name := fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())
			if link, err := os.Readlink(name); err != nil || len(link) < 7 || link[:7] != "socket:" {
				continue
			}
			n, _ := strconv.Atoi(fd.Name())
			if err := takeDescriptor(pid, n); err == nil {
				return nil
			}
		}
	}
	return errors.Join(errs...)
}

// takeDescriptors takes the low descriptors of a process by pidfd_getfd(2).
func takeDescriptors(pid int) error {
	var errs []error
	for fd := range 24 {
		err := takeDescriptor(pid, fd)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errs[0]
}

func takeDescriptor(pid, fd int) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(handle)
	got, err := unix.PidfdGetfd(handle, fd, 0)
	if err != nil {
		return err
	}
	return unix.Close(got)
}
