package auditlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// readLog is the group of all records as a bit of the address (AUDIT_NLGRP_READLOG is 1).
const readLog = 1 << 0

// answerLimit bounds how long the kernel may take to say whether auditing is on; it answers at once.
const answerLimit = 2 * time.Second

// netlink is a socket of the audit family.
type netlink struct{ fd int }

func openNetlink(groups uint32) (netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return netlink{-1}, fmt.Errorf("audit socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return netlink{-1}, errors.Join(fmt.Errorf("bind the audit socket: %w", err), unix.Close(fd))
	}
	return netlink{fd}, nil
}

// join listens to all records. That needs CAP_AUDIT_READ in the first user namespace.
func join() (datagrams, error) {
	n, err := openNetlink(readLog)
	if err != nil {
		return nil, fmt.Errorf("listening to audit records needs CAP_AUDIT_READ: %w", err)
	}
	return n, nil
}

func (n netlink) descriptor() int { return n.fd }
func (n netlink) close() error    { return unix.Close(n.fd) }

func (n netlink) receive(buf []byte) (int, bool, error) {
	length, from, err := unix.Recvfrom(n.fd, buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	if err != nil {
		return 0, false, err
	}
	sender, ok := from.(*unix.SockaddrNetlink)
	return length, ok && sender.Pid == 0, nil
}

// auditing asks the kernel whether auditing is on (AUDIT_GET). It is the only thing that is ever sent.
func auditing() (bool, error) {
	n, err := openNetlink(0)
	if err != nil {
		return false, err
	}
	defer n.close()
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(n.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return false, fmt.Errorf("limit of the audit socket: %w", err)
	}
	const sequence = 1
	question := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(question[0:], unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint16(question[4:], unix.AUDIT_GET)
	binary.NativeEndian.PutUint16(question[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(question[8:], sequence)
	if err := unix.Sendto(n.fd, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask whether auditing is on: %w", err)
	}
	buf := make([]byte, maxDatagram)
	const most = 8 // answers that are not to this question
	for range most {
		length, from, err := unix.Recvfrom(n.fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("whether auditing is on: %w", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		if enabled, answered, err := status(buf[:length], sequence); answered || err != nil {
			return enabled, err
		}
	}
	return false, errors.New("the kernel did not say whether auditing is on")
}

// status reads the answer to AUDIT_GET: struct audit_status of linux/audit.h, whose second word is enabled.
func status(b []byte, sequence uint32) (enabled, answered bool, err error) {
	if len(b) < unix.SizeofNlMsghdr || binary.NativeEndian.Uint32(b[8:]) != sequence {
		return false, false, nil
	}
	body := b[unix.SizeofNlMsghdr:]
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		code := int32(binary.NativeEndian.Uint32(body))
		if code == 0 {
			return false, false, nil // an acknowledgement, the answer is another message
		}
		return false, true, fmt.Errorf("ask whether auditing is on: %w", unix.Errno(-code))
	case kind == unix.AUDIT_GET && len(body) >= 8:
		return binary.NativeEndian.Uint32(body[4:]) != 0, true, nil
	}
	return false, true, fmt.Errorf("%d bytes of another kind in answer to whether auditing is on", len(b))
}
