package probe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

const (
	allowedPort  = 443  // the port on which the proxy answers for Egress.AllowedName
	otherPort    = 8443 // a port on which nothing is allowed
	resolverPort = 53
)

var (
	localhost4 = [4]byte{127, 0, 0, 1}
	localhost6 = [16]byte{15: 1}
	resolver4  = &unix.SockaddrInet4{Port: resolverPort, Addr: [4]byte{127, 0, 0, 53}}
	resolver6  = &unix.SockaddrInet6{Port: resolverPort, Addr: localhost6}
	// unnamed is in the range of synthetic addresses (RFC 2544), at the end that is given out last.
	unnamed = &unix.SockaddrInet4{Port: allowedPort, Addr: [4]byte{198, 19, 255, 254}}
)

// conversation is one question to the proxy of the session. All are begun before the first is ended, on one thread: then
// the proxy works on the next while the answer to the last is read, and a proxy that says nothing costs the time of one.
type conversation struct {
	name  string
	wall  enforce.Wall
	want  enforce.Outcome
	begin beginning                       // nil: there is nothing to say
	end   func(t *talk, err error) result // t is nil if err is not
}

// beginning connects and says something. The talk ends at the given time.
type beginning func(until time.Time) (*talk, error)

// proxied lists what is asked of the proxy: a session that has one must have exactly the way out that it names.
func proxied(s Setup) []attempt {
	e := s.Targets.Egress
	if e == nil {
		if !s.Spec.Net.Egress() {
			return nil
		}
		return []attempt{{name: "proxy-connect", wall: enforce.NetEgress, want: enforce.Works,
			run: func(*battery) result { return unclear("the setup names no proxy") }}}
	}
	var all []attempt
	for i, c := range conversations(*e, s.Targets.LoopbackPort, found{}) {
		all = append(all, attempt{name: c.name, wall: c.wall, want: c.want, run: func(b *battery) result {
			if b.proxy == nil {
				b.proxy = converse(*e, s.Targets.LoopbackPort)
			}
			return b.proxy[i]
		}})
	}
	return all
}

// converse holds all conversations and returns the results in their order.
func converse(e Egress, canary int) []result {
	all := conversations(e, canary, lookUp(e))
	until := time.Now().Add(talkTime)
	talks, errs := make([]*talk, len(all)), make([]error, len(all))
	for i, c := range all {
		if c.begin != nil {
			talks[i], errs[i] = c.begin(until)
		}
	}
	results := make([]result, len(all))
	for i, c := range all {
		results[i] = c.end(talks[i], errs[i])
		talks[i].close()
	}
	return results
}

func conversations(e Egress, canary int, f found) []conversation {
	proxy4 := &unix.SockaddrInet4{Port: int(e.ProxyPort), Addr: localhost4}
	direct := &unix.SockaddrInet4{Port: int(e.TransparentPort), Addr: localhost4}
	all := []conversation{
		connectAllowed("proxy-connect", proxy4, e),
		socksAllowed(proxy4, e),
		resolved("dns-allowed", f.four),
		resolvesOverTCP(e),
		answersNothingElse(e),
		closesSilently("redirect-direct", direct),
	}
	if e.DeniedName != "" {
		all = append(all,
			connectDenied("proxy-denied", proxy4, e.DeniedName, allowedPort, e),
			connectDenied("proxy-other-port", proxy4, e.AllowedName, otherPort, e),
			socksDenied(proxy4, e),
			doesNotResolve(e))
	}
	if canary > 0 { // the proxy lives where the host's loopback is
		c := connectDenied("proxy-loopback", proxy4, "127.0.0.1", canary, e)
		c.wall = enforce.NetLocal
		all = append(all, c)
	}
	if e.Transparent {
		all = append(all, redirected("redirect", f.four, e), closesSilently("redirect-unnamed", unnamed), datagram(f.four, e))
	}
	if !e.IPv6 {
		return all
	}
	proxy6 := &unix.SockaddrInet6{Port: int(e.ProxyPort), Addr: localhost6}
	all = append(all, connectAllowed("proxy-connect6", proxy6, e), resolved("dns-allowed6", f.six))
	if e.Transparent {
		all = append(all, redirected("redirect6", f.six, e), closesSilently("redirect-unnamed6", f.six.other()))
	}
	return all
}

func works(name string, begin beginning, end func(*talk, error) result) conversation {
	return conversation{name, enforce.NetEgress, enforce.Works, begin, end}
}

func stops(name string, begin beginning, end func(*talk, error) result) conversation {
	return conversation{name, enforce.NetEgress, enforce.Stopped, begin, end}
}

// saying connects and says something.
func saying(kind int, to unix.Sockaddr, data []byte) beginning {
	return func(until time.Time) (*talk, error) {
		if to == nil {
			return nil, errNoAddress
		}
		t, err := dial(kind, to, until)
		if err == nil && len(data) > 0 {
			if err = t.say(data); err != nil {
				t.close()
				return nil, err
			}
		}
		return t, err
	}
}

func broken(what string, err error) result {
	return result{enforce.Broken, what + ": " + errnoName(err)}
}

// connectRequest asks an HTTP proxy for a tunnel.
func connectRequest(name string, port int) []byte {
	to := name + ":" + strconv.Itoa(port)
	return []byte("CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n")
}

func connectAllowed(name string, proxy unix.Sockaddr, e Egress) conversation {
	return works(name, saying(unix.SOCK_STREAM, proxy, connectRequest(e.AllowedName, allowedPort)), func(t *talk, err error) result {
		if err != nil {
			return broken("the proxy port", err)
		}
		head, err := t.upTo("\r\n\r\n")
		if err != nil {
			return broken("the proxy", err)
		}
		if !strings.HasPrefix(string(head), "HTTP/1.1 200 ") {
			return result{enforce.Broken, fmt.Sprintf("the proxy said %.40q for an allowed name", head)}
		}
		return t.wantToken(e)
	})
}

// wantToken reads to the end what only the proxy of this session can say.
func (t *talk) wantToken(e Egress) result {
	said, err := t.rest()
	switch {
	case err != nil:
		return broken("behind the proxy", err)
	case e.Token == "" || string(said) != e.Token:
		return result{enforce.Broken, fmt.Sprintf("%d bytes came that are not the token", len(said))}
	}
	return result{enforce.Works, "the token came"}
}

func connectDenied(name string, proxy unix.Sockaddr, host string, port int, e Egress) conversation {
	return stops(name, saying(unix.SOCK_STREAM, proxy, connectRequest(host, port)), func(t *talk, err error) result {
		if err != nil {
			return unclear("the proxy port: " + errnoName(err))
		}
		data, err := t.upTo("\r\n\r\n")
		head := string(data)
		switch {
		case err != nil:
			return unclear("the proxy: " + errnoName(err))
		case strings.HasPrefix(head, "HTTP/1.1 403 ") && e.Token != "" && !strings.Contains(head, e.Token):
			return stopped("refused")
		case strings.HasPrefix(head, "HTTP/1.1 403 "):
			return leaked("the refusal holds the token")
		case len(head) > 9 && head[9] == '2': // a success of any kind
			return leaked("the proxy opens a tunnel to what nothing allows")
		}
		return unclear(fmt.Sprintf("the proxy said %.40q", head))
	})
}

// Replies of SOCKS5 (RFC 1928 section 6).
const (
	socksGranted    = 0
	socksNotAllowed = 2
)

// socksRequest is a greeting with one method, no authentication, and a request by name right behind it.
func socksRequest(name string) []byte {
	request := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(name))}, name...)
	return binary.BigEndian.AppendUint16(request, allowedPort)
}

// socksReply reads the answers to socksRequest and returns the reply code.
func socksReply(t *talk) (byte, error) {
	method, err := t.take(2)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(method, []byte{5, 0}) {
		return 0, fmt.Errorf("method % x", method)
	}
	head, err := t.take(4)
	if err != nil {
		return 0, err
	}
	size, known := map[byte]int{1: 4, 4: 16}[head[3]] // kinds of addresses; a name is never bound
	if head[0] != 5 || !known {
		return 0, fmt.Errorf("reply % x", head)
	}
	_, err = t.take(size + 2)
	return head[1], err
}

func socksAllowed(proxy unix.Sockaddr, e Egress) conversation {
	return works("proxy-socks", saying(unix.SOCK_STREAM, proxy, socksRequest(e.AllowedName)), func(t *talk, err error) result {
		if err != nil {
			return broken("the proxy port", err)
		}
		code, err := socksReply(t)
		if err != nil {
			return broken("SOCKS", err)
		}
		if code != socksGranted {
			return result{enforce.Broken, fmt.Sprintf("SOCKS reply %d for an allowed name", code)}
		}
		return t.wantToken(e)
	})
}

func socksDenied(proxy unix.Sockaddr, e Egress) conversation {
	return stops("proxy-socks-denied", saying(unix.SOCK_STREAM, proxy, socksRequest(e.DeniedName)), func(t *talk, err error) result {
		if err != nil {
			return unclear("the proxy port: " + errnoName(err))
		}
		code, err := socksReply(t)
		switch {
		case err != nil:
			return unclear("SOCKS: " + errnoName(err))
		case code == socksGranted:
			return leaked("SOCKS connects to what nothing allows")
		case code == socksNotAllowed:
			return stopped("refused")
		}
		return unclear(fmt.Sprintf("SOCKS reply %d", code))
	})
}
