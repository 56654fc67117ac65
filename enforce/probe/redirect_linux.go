package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// queryID is fixed: nobody but our own resolver is in the namespace when the battery runs.
const queryID = 0x6377

// asking puts one question to a resolver, over UDP or TCP.
func asking(kind int, resolver unix.Sockaddr, name string, record uint16) beginning {
	asked, err := question(queryID, name, record)
	if err != nil {
		return func(time.Time) (*talk, error) { return nil, err }
	}
	data := asked
	if kind == unix.SOCK_STREAM {
		data = append(binary.BigEndian.AppendUint16(nil, uint16(len(asked))), asked...)
	}
	return func(until time.Time) (*talk, error) {
		t, err := saying(kind, resolver, data)(until)
		if err == nil {
			t.asked, t.kind = asked, kind
		}
		return t, err
	}
}

// reply reads the answer to what was asked.
func (t *talk) reply() (reply, error) {
	if t.kind == unix.SOCK_DGRAM {
		if _, err := t.more(); err != nil {
			return reply{}, err
		}
		return parseReply(t.asked, t.got)
	}
	size, err := t.take(2)
	if err != nil {
		return reply{}, err
	}
	data, err := t.take(int(binary.BigEndian.Uint16(size)))
	if err != nil {
		return reply{}, err
	}
	return parseReply(t.asked, data)
}

// synthetic reports whether an address is one that only the session's own resolver gives out: 198.18.0.0/15 (RFC 2544)
// or a unique local address (RFC 4193).
func synthetic(a []byte) bool {
	return len(a) == 4 && a[0] == 198 && a[1]&0xfe == 18 || len(a) == 16 && a[0] == 0xfd
}

var (
	errNotSynthetic = errors.New("the resolver gives out an address that is not synthetic")
	errNoAddress    = errors.New("the allowed name has no address")
)

// address is what the resolver said about the allowed name.
type address struct {
	data []byte // 4 or 16 bytes; nil if err is not
	err  error
}

// found are its two addresses. Other conversations need them, so they are looked up before these begin.
type found struct{ four, six address }

func lookUp(e Egress) (f found) {
	until := time.Now().Add(talkTime)
	t4, err4 := asking(unix.SOCK_DGRAM, resolver4, e.AllowedName, typeA)(until)
	defer t4.close()
	if e.IPv6 {
		t6, err6 := asking(unix.SOCK_DGRAM, resolver6, e.AllowedName, typeAAAA)(until)
		defer t6.close()
		f.six = t6.address(err6)
	}
	f.four = t4.address(err4)
	return f
}

// address reads the answer for the allowed name. Every address in it has to be synthetic.
func (t *talk) address(err error) address {
	if err != nil {
		return address{err: err}
	}
	r, err := t.reply()
	if err != nil {
		return address{err: err}
	}
	if r.code != noError || len(r.addresses) == 0 || len(r.addresses) != r.answers {
		return address{err: fmt.Errorf("code %d, %d addresses in %d answers", r.code, len(r.addresses), r.answers)}
	}
	for _, a := range r.addresses {
		if !synthetic(a) {
			return address{err: errNotSynthetic}
		}
	}
	return address{data: r.addresses[0]}
}

func (a address) judge() result {
	if a.err == nil {
		return result{enforce.Works, "a synthetic address"}
	}
	return broken("the resolver", a.err)
}

func resolved(name string, a address) conversation {
	return works(name, nil, func(*talk, error) result { return a.judge() })
}

func resolvesOverTCP(e Egress) conversation {
	return works("dns-tcp", asking(unix.SOCK_STREAM, resolver4, e.AllowedName, typeA), func(t *talk, err error) result {
		return t.address(err).judge()
	})
}

func doesNotResolve(e Egress) conversation {
	return stops("dns-denied", asking(unix.SOCK_DGRAM, resolver4, e.DeniedName, typeA), func(t *talk, err error) result {
		var r reply
		if err == nil {
			r, err = t.reply()
		}
		switch {
		case err != nil:
			return unclear("the resolver: " + errnoName(err))
		case r.answers > 0:
			return leaked("the resolver answers for a name that nothing allows")
		case r.code != nxDomain:
			return unclear(fmt.Sprintf("the resolver answers with code %d", r.code))
		}
		return stopped("no such name")
	})
}

// answersNothingElse asks for a type that carries text: a resolver that passes it on is a way out and in.
func answersNothingElse(e Egress) conversation {
	return stops("dns-other-type", asking(unix.SOCK_DGRAM, resolver4, e.AllowedName, typeTXT), func(t *talk, err error) result {
		var r reply
		if err == nil {
			r, err = t.reply()
		}
		const notImplemented, refused = 4, 5
		switch {
		case err != nil:
			return unclear("the resolver: " + errnoName(err))
		case r.answers > 0:
			return leaked("the resolver answers with text")
		case r.code == noError || r.code == nxDomain || r.code == notImplemented || r.code == refused:
			return stopped("no record")
		}
		return unclear(fmt.Sprintf("the resolver answers with code %d", r.code)) // a failure of a server that was asked, perhaps
	})
}

// at443 is the port of the allowed name at its address; nil if it has none.
func (a address) at443() unix.Sockaddr {
	switch len(a.data) {
	case 4:
		return &unix.SockaddrInet4{Port: allowedPort, Addr: [4]byte(a.data)}
	case 16:
		return &unix.SockaddrInet6{Port: allowedPort, Addr: [16]byte(a.data)}
	}
	return nil
}

// other is an address in the range of an IPv6 one that is given out last.
func (a address) other() unix.Sockaddr {
	if len(a.data) != 16 {
		return nil
	}
	last := slices.Clone(a.data)
	copy(last[12:], []byte{0xff, 0xff, 0xff, 0xfe})
	return address{data: last}.at443()
}

// redirected connects to the address that the resolver gave out, as a program does that knows no proxy.
func redirected(name string, a address, e Egress) conversation {
	return works(name, saying(unix.SOCK_STREAM, a.at443(), nil), func(t *talk, err error) result {
		if err != nil {
			return broken("connect to a synthetic address", err)
		}
		return t.wantToken(e)
	})
}

// closesSilently wants a connection refused, or closed without a byte.
func closesSilently(name string, to unix.Sockaddr) conversation {
	return stops(name, saying(unix.SOCK_STREAM, to, nil), func(t *talk, err error) result {
		if err != nil {
			return judge(err, errnos{unix.ECONNREFUSED, unix.ECONNRESET, unix.ENETUNREACH, unix.EACCES, unix.EPERM}, nil)
		}
		said, err := t.rest()
		switch {
		case len(said) > 0:
			return leaked(fmt.Sprintf("%d bytes came", len(said)))
		case err != nil:
			return unclear("after the connection: " + errnoName(err))
		}
		return stopped("closed without a byte")
	})
}

// datagram sends to a synthetic address, which answers TCP only. As with the canary, only a refusal proves that nobody
// took it.
func datagram(a address, e Egress) conversation {
	return stops("redirect-udp", saying(unix.SOCK_DGRAM, a.at443(), []byte(e.Token)), func(t *talk, err error) result {
		if err == nil {
			_, err = t.more()
		}
		return judge(err, errnos{unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM}, nil)
	})
}
