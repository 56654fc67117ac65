package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Sizes and places in struct news and struct exec_news of egress.bpf.c.
const (
	newsSize     = 64
	execNewsSize = newsSize + 256
	addrAt       = 32
	commAt       = 48
)

// Next waits for the next attempt that was refused, or program that was started. It returns an error after Close.
func (p *Programs) Next() (enforce.Refusal, error) {
	record, err := p.reader.Read()
	if err != nil {
		return enforce.Refusal{}, err
	}
	return parse(record.RawSample, clock())
}

// Unheard counts what Next did not get, because there was too much at once.
func (p *Programs) Unheard() int64 {
	var n uint64
	if err := p.cell.unheard.Get(&n); err != nil {
		return 0 // closed
	}
	return int64(n)
}

// clock is what to add to CLOCK_MONOTONIC to get the time of day.
func clock() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(ts.Nano()))
}

// parse reads what a program sent. boot is when CLOCK_MONOTONIC was 0.
func parse(raw []byte, boot time.Time) (enforce.Refusal, error) {
	if len(raw) < newsSize {
		return enforce.Refusal{}, fmt.Errorf("%d bytes from the kernel, want %d", len(raw), newsSize)
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	number := word(8)
	if int(number) >= len(hooks) {
		return enforce.Refusal{}, fmt.Errorf("the kernel names the hook %d, and there are %d", number, len(hooks))
	}
	h := &hooks[number]
	r := enforce.Refusal{
		Time: boot.Add(time.Duration(binary.NativeEndian.Uint64(raw))), Source: enforce.SourceEBPF, Wall: h.wall, Hook: h.name,
		Pid: int(word(12)), Comm: text(raw[commAt:newsSize]),
	}
	family, kind, protocol, port := word(16), word(20), word(24), uint16(word(28))
	switch {
	case h.name == enforce.HookExec:
		if len(raw) < execNewsSize {
			return enforce.Refusal{}, fmt.Errorf("%d bytes from the kernel about a program, want %d", len(raw), execNewsSize)
		}
		r.What = text(raw[newsSize:execNewsSize])
	case h.name == "sock_create":
		r.What = "socket " + socketName(family, kind, protocol)
	case h.wall == enforce.NetLocal:
		r.What = "local socket"
	case h.name == "skb":
		r.What = "packet to " + address(family, raw[addrAt:commAt]).String()
	default:
		a := address(family, raw[addrAt:commAt])
		r.What = netip.AddrPortFrom(a, port).String()
		if h.name == "bind4" || h.name == "bind6" {
			r.What = "server on " + r.What
			break
		}
		r.Needed = needed(a, kind, port)
		r.What = transport(kind) + " " + r.What
	}
	return r, nil
}

// text is a string of the kernel, up to its NUL.
func text(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func address(family uint32, b []byte) netip.Addr {
	if family == unix.AF_INET6 {
		return netip.AddrFrom16([16]byte(b)).Unmap()
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

func transport(kind uint32) string {
	switch kind {
	case unix.SOCK_STREAM:
		return "tcp"
	case unix.SOCK_DGRAM:
		return "udp"
	}
	return "type " + strconv.Itoa(int(kind))
}

// socketName says what socket was asked for, in the words of socket(2).
func socketName(family, kind, protocol uint32) string {
	name := map[uint32]string{unix.AF_INET: "inet", unix.AF_INET6: "inet6"}[family]
	if name == "" {
		name = "family " + strconv.Itoa(int(family))
	}
	switch kind {
	case unix.SOCK_STREAM:
		name += " stream"
	case unix.SOCK_DGRAM:
		name += " dgram"
	case unix.SOCK_RAW:
		name += " raw"
	default:
		name += " type " + strconv.Itoa(int(kind))
	}
	return name + " protocol " + strconv.Itoa(int(protocol))
}

// needed is the flag that would lead a connection to this address to the proxy, which then makes it.
func needed(a netip.Addr, kind uint32, port uint16) string {
	if kind != unix.SOCK_STREAM || port == 0 || !a.IsGlobalUnicast() || a.IsPrivate() {
		return ""
	}
	return "--allow " + netip.AddrPortFrom(a, port).String()
}
