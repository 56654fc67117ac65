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

// patienceWithProxy bounds all conversations together, so that a proxy that says nothing does not hold up the end of the
// session for the time of each.
const patienceWithProxy = 3 * talkTime

// conversation is one question to the proxy of the session. They are held one after the other: each is over in a tenth
// of a millisecond, which is less than a thread costs.
type conversation struct {
	name string
	wall enforce.Wall
	want enforce.Outcome
	run  func(Egress) result
}

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
	for _, c := range conversations(*e, s.Targets.LoopbackPort) {
		all = append(all, attempt{name: c.name, wall: c.wall, want: c.want, run: func(b *battery) result { return b.talk(c) }})
	}
	return all
}

func (b *battery) talk(c conversation) result {
	if b.talked > patienceWithProxy {
		return unclear("the proxy took too long before")
	}
	begun := time.Now()
	r := c.run(*b.Targets.Egress)
	b.talked += time.Since(begun)
	return r
}

func conversations(e Egress, canary int) []conversation {
	works := func(name string, run func(Egress) result) conversation {
		return conversation{name: name, wall: enforce.NetEgress, want: enforce.Works, run: run}
	}
	stops := func(name string, run func(Egress) result) conversation {
		return conversation{name: name, wall: enforce.NetEgress, want: enforce.Stopped, run: run}
	}
	proxy4 := &unix.SockaddrInet4{Port: int(e.ProxyPort), Addr: localhost4}
	all := []conversation{
		works("proxy-connect", func(e Egress) result { return connectAllowed(proxy4, e) }),
		works("proxy-socks", func(e Egress) result { return socksAllowed(proxy4, e) }),
		works("dns-allowed", func(e Egress) result { return resolves(resolver4, typeA, e) }),
		works("dns-tcp", resolvesOverTCP),
		stops("dns-other-type", answersNothingElse),
		stops("redirect-direct", func(e Egress) result {
			return closesSilently(&unix.SockaddrInet4{Port: int(e.TransparentPort), Addr: localhost4})
		}),
	}
	if e.DeniedName != "" {
		all = append(all,
			stops("proxy-denied", func(e Egress) result { return connectDenied(proxy4, e.DeniedName, allowedPort, e) }),
			stops("proxy-other-port", func(e Egress) result { return connectDenied(proxy4, e.AllowedName, otherPort, e) }),
			stops("proxy-socks-denied", func(e Egress) result { return socksDenied(proxy4, e) }),
			stops("dns-denied", func(e Egress) result { return doesNotResolve(resolver4, e) }))
	}
	if canary > 0 { // the proxy lives where the host's loopback is
		all = append(all, conversation{name: "proxy-loopback", wall: enforce.NetLocal, want: enforce.Stopped,
			run: func(e Egress) result { return connectDenied(proxy4, "127.0.0.1", canary, e) }})
	}
	if e.Transparent {
		all = append(all,
			works("redirect", func(e Egress) result { return redirected(resolver4, typeA, e) }),
			stops("redirect-unnamed", func(Egress) result { return closesSilently(unnamed) }),
			stops("redirect-udp", datagram))
	}
	if !e.IPv6 {
		return all
	}
	proxy6 := &unix.SockaddrInet6{Port: int(e.ProxyPort), Addr: localhost6}
	all = append(all,
		works("proxy-connect6", func(e Egress) result { return connectAllowed(proxy6, e) }),
		works("dns-allowed6", func(e Egress) result { return resolves(resolver6, typeAAAA, e) }))
	if e.Transparent {
		all = append(all,
			works("redirect6", func(e Egress) result { return redirected(resolver6, typeAAAA, e) }),
			stops("redirect-unnamed6", unnamed6))
	}
	return all
}

func broken(what string, err error) result {
	return result{enforce.Broken, what + ": " + errnoName(err)}
}

// connectHead asks an HTTP proxy for a tunnel and returns the head of its answer.
func connectHead(t *talk, name string, port int) (string, error) {
	to := name + ":" + strconv.Itoa(port)
	if err := t.say([]byte("CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n")); err != nil {
		return "", err
	}
	head, err := t.upTo("\r\n\r\n")
	return string(head), err
}

func connectAllowed(proxy unix.Sockaddr, e Egress) result {
	t, err := dial(unix.SOCK_STREAM, proxy)
	if err != nil {
		return broken("the proxy port", err)
	}
	defer t.close()
	head, err := connectHead(t, e.AllowedName, allowedPort)
	if err != nil {
		return broken("the proxy", err)
	}
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		return result{enforce.Broken, fmt.Sprintf("the proxy said %.40q for an allowed name", head)}
	}
	return t.wantToken(e)
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

func connectDenied(proxy unix.Sockaddr, name string, port int, e Egress) result {
	t, err := dial(unix.SOCK_STREAM, proxy)
	if err != nil {
		return unclear("the proxy port: " + errnoName(err))
	}
	defer t.close()
	head, err := connectHead(t, name, port)
	switch {
	case err != nil:
		return unclear("the proxy: " + errnoName(err))
	case strings.HasPrefix(head, "HTTP/1.1 403 "):
		if e.Token == "" || strings.Contains(head, e.Token) {
			return leaked("the refusal holds the token")
		}
		return stopped("refused")
	case len(head) > 9 && head[9] == '2': // a success of any kind
		return leaked("the proxy opens a tunnel to what nothing allows")
	}
	return unclear(fmt.Sprintf("the proxy said %.40q", head))
}

// Replies of SOCKS5 (RFC 1928 section 6).
const (
	socksGranted    = 0
	socksNotAllowed = 2
)

// socksReply asks for a connection by name and returns the reply code.
func socksReply(t *talk, name string) (byte, error) {
	if len(name) > 255 {
		return 0, fmt.Errorf("a name of %d bytes", len(name))
	}
	if err := t.say([]byte{5, 1, 0}); err != nil { // one method: no authentication
		return 0, err
	}
	method, err := t.take(2)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(method, []byte{5, 0}) {
		return 0, fmt.Errorf("method % x", method)
	}
	request := append([]byte{5, 1, 0, 3, byte(len(name))}, name...)
	if err := t.say(binary.BigEndian.AppendUint16(request, allowedPort)); err != nil {
		return 0, err
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

func socksAllowed(proxy unix.Sockaddr, e Egress) result {
	t, err := dial(unix.SOCK_STREAM, proxy)
	if err != nil {
		return broken("the proxy port", err)
	}
	defer t.close()
	code, err := socksReply(t, e.AllowedName)
	if err != nil {
		return broken("SOCKS", err)
	}
	if code != socksGranted {
		return result{enforce.Broken, fmt.Sprintf("SOCKS reply %d for an allowed name", code)}
	}
	return t.wantToken(e)
}

func socksDenied(proxy unix.Sockaddr, e Egress) result {
	t, err := dial(unix.SOCK_STREAM, proxy)
	if err != nil {
		return unclear("the proxy port: " + errnoName(err))
	}
	defer t.close()
	code, err := socksReply(t, e.DeniedName)
	switch {
	case err != nil:
		return unclear("SOCKS: " + errnoName(err))
	case code == socksGranted:
		return leaked("SOCKS connects to what nothing allows")
	case code == socksNotAllowed:
		return stopped("refused")
	}
	return unclear(fmt.Sprintf("SOCKS reply %d", code))
}
