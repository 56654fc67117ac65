package probe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// queryID is fixed: nobody but our own resolver is in the namespace when the battery runs.
const queryID = 0x6377

// ask puts one question to a resolver, over UDP or TCP.
func ask(kind int, resolver unix.Sockaddr, name string, record uint16) (reply, error) {
	asked, err := question(queryID, name, record)
	if err != nil {
		return reply{}, err
	}
	t, err := dial(kind, resolver)
	if err != nil {
		return reply{}, err
	}
	defer t.close()
	if kind == unix.SOCK_DGRAM {
		if err := t.say(asked); err != nil {
			return reply{}, err
		}
		if _, err := t.more(); err != nil {
			return reply{}, err
		}
		return parseReply(asked, t.got)
	}
	if err := t.say(append(binary.BigEndian.AppendUint16(nil, uint16(len(asked))), asked...)); err != nil {
		return reply{}, err
	}
	size, err := t.take(2)
	if err != nil {
		return reply{}, err
	}
	data, err := t.take(int(binary.BigEndian.Uint16(size)))
	if err != nil {
		return reply{}, err
	}
	return parseReply(asked, data)
}

// synthetic reports whether an address is one that only the session's own resolver gives out: 198.18.0.0/15 (RFC 2544)
// or a unique local address (RFC 4193).
func synthetic(a []byte) bool {
	return len(a) == 4 && a[0] == 198 && a[1]&0xfe == 18 || len(a) == 16 && a[0] == 0xfd
}

var errNotSynthetic = errors.New("the resolver gives out an address that is not synthetic")

// lookUp asks for the address of the allowed name. Every address of the answer has to be synthetic.
func lookUp(kind int, resolver unix.Sockaddr, record uint16, e Egress) ([]byte, error) {
	r, err := ask(kind, resolver, e.AllowedName, record)
	if err != nil {
		return nil, err
	}
	if r.code != noError || len(r.addresses) == 0 || len(r.addresses) != r.answers {
		return nil, fmt.Errorf("code %d, %d addresses in %d answers", r.code, len(r.addresses), r.answers)
	}
	for _, a := range r.addresses {
		if !synthetic(a) {
			return nil, errNotSynthetic
		}
	}
	return r.addresses[0], nil
}

func judgeLookUp(err error) result {
	if err == nil {
		return result{enforce.Works, "a synthetic address"}
	}
	return broken("the resolver", err)
}

func resolves(resolver unix.Sockaddr, record uint16, e Egress) result {
	_, err := lookUp(unix.SOCK_DGRAM, resolver, record, e)
	return judgeLookUp(err)
}

func resolvesOverTCP(e Egress) result {
	_, err := lookUp(unix.SOCK_STREAM, resolver4, typeA, e)
	return judgeLookUp(err)
}

func doesNotResolve(resolver unix.Sockaddr, e Egress) result {
	r, err := ask(unix.SOCK_DGRAM, resolver, e.DeniedName, typeA)
	switch {
	case err != nil:
		return unclear("the resolver: " + errnoName(err))
	case r.answers > 0:
		return leaked("the resolver answers for a name that nothing allows")
	case r.code != nxDomain:
		return unclear(fmt.Sprintf("the resolver answers with code %d", r.code))
	}
	return stopped("no such name")
}

// answersNothingElse asks for a type that carries text: a resolver that passes it on is a way out and in.
func answersNothingElse(e Egress) result {
	r, err := ask(unix.SOCK_DGRAM, resolver4, e.AllowedName, typeTXT)
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
}

// at443 is the port of the allowed name at an address of the resolver.
func at443(a []byte) unix.Sockaddr {
	if len(a) == 4 {
		return &unix.SockaddrInet4{Port: allowedPort, Addr: [4]byte(a)}
	}
	return &unix.SockaddrInet6{Port: allowedPort, Addr: [16]byte(a)}
}

// redirected connects to the address that the resolver gave out, as a program does that knows no proxy.
func redirected(resolver unix.Sockaddr, record uint16, e Egress) result {
	a, err := lookUp(unix.SOCK_DGRAM, resolver, record, e)
	if err != nil {
		return broken("the resolver", err)
	}
	t, err := dial(unix.SOCK_STREAM, at443(a))
	if err != nil {
		return broken("connect to a synthetic address", err)
	}
	defer t.close()
	return t.wantToken(e)
}

func unnamed6(e Egress) result {
	a, err := lookUp(unix.SOCK_DGRAM, resolver6, typeAAAA, e)
	if err != nil {
		return unclear("the resolver: " + errnoName(err))
	}
	copy(a[12:], []byte{0xff, 0xff, 0xff, 0xfe})
	return closesSilently(at443(a))
}

// closesSilently wants a connection refused, or closed without a byte.
func closesSilently(sa unix.Sockaddr) result {
	t, err := dial(unix.SOCK_STREAM, sa)
	if err != nil {
		return judge(err, errnos{unix.ECONNREFUSED, unix.ECONNRESET, unix.ENETUNREACH, unix.EACCES, unix.EPERM}, nil)
	}
	defer t.close()
	said, err := t.rest()
	switch {
	case len(said) > 0:
		return leaked(fmt.Sprintf("%d bytes came", len(said)))
	case err != nil:
		return unclear("after the connection: " + errnoName(err))
	}
	return stopped("closed without a byte")
}

// datagram sends to a synthetic address, which answers TCP only. As with the canary, only a refusal proves that nobody
// took it.
func datagram(e Egress) result {
	a, err := lookUp(unix.SOCK_DGRAM, resolver4, typeA, e)
	if err != nil {
		return unclear("the resolver: " + errnoName(err))
	}
	refusals := errnos{unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM}
	t, err := dial(unix.SOCK_DGRAM, at443(a))
	if err != nil {
		return judge(err, refusals, nil)
	}
	defer t.close()
	if err := t.say([]byte(e.Token)); err != nil {
		return judge(err, refusals, nil)
	}
	_, err = t.more()
	return judge(err, refusals, nil)
}
