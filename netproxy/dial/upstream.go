package dial

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"coworker/netproxy/hostmatch"
)

// maxAnswer bounds the head of the upstream proxy's answer to CONNECT.
const maxAnswer = 16 << 10

// Upstream is an HTTP proxy further out. A person configured it, so its address may lie in any network.
type Upstream struct {
	host          hostmatch.Host
	port          uint16
	authorization string // value of Proxy-Authorization; empty: none
	noProxy       []exception
}

type exception struct {
	host   hostmatch.Host
	suffix string
	net    netip.Prefix
}

// NewUpstream reads http://HOST:PORT and the list of what is reached directly: hosts, .suffixes and networks.
func NewUpstream(address, user, password string, noProxy []string) (*Upstream, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("upstream proxy: %w", err)
	}
	if u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("upstream proxy %q: want http://HOST:PORT", address)
	}
	up := &Upstream{}
	if up.host, up.port, err = hostmatch.ParseAuthority(u.Host, 80); err != nil {
		return nil, fmt.Errorf("upstream proxy: %w", err)
	}
	if user != "" {
		if strings.Contains(user, ":") {
			return nil, fmt.Errorf("the user of the upstream proxy holds a colon (RFC 7617 section 2)")
		}
		up.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	for _, s := range noProxy {
		e, err := parseException(s)
		if err != nil {
			return nil, fmt.Errorf("exception %q of the upstream proxy: %w", s, err)
		}
		up.noProxy = append(up.noProxy, e)
	}
	return up, nil
}

func parseException(s string) (exception, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return exception{net: p.Masked()}, nil
	}
	if below, ok := strings.CutPrefix(strings.TrimPrefix(s, "*"), "."); ok {
		h, err := hostmatch.ParseName(below)
		return exception{suffix: "." + h.Name()}, err
	}
	h, err := hostmatch.ParseHost(s)
	return exception{host: h}, err
}

// direct says that h is not reached through the upstream proxy. Networks are about literals: a name is resolved out there.
func (u *Upstream) direct(h hostmatch.Host) bool {
	a, literal := h.Addr()
	for _, e := range u.noProxy {
		switch {
		case e.net.IsValid():
			if literal && e.net.Contains(a) {
				return true
			}
		case e.suffix != "":
			if strings.HasSuffix(h.Name(), e.suffix) {
				return true
			}
		case e.host == h:
			return true
		}
	}
	return false
}

// through asks the upstream proxy for a tunnel, or leads to the proxy itself for plain requests. authority is canonical, so
// it holds no octet that could end the line.
func (d *Dialer) through(ctx context.Context, t Target, authority string, byUpstream bool) (Result, error) {
	u := d.Upstream
	addrs := []netip.Addr{}
	if a, ok := u.host.Addr(); ok {
		addrs = append(addrs, a)
	} else {
		var err error
		if addrs, err = d.Resolve(ctx, u.host.Name()); err != nil || len(addrs) == 0 {
			return Result{}, &Failure{fmt.Sprintf("the upstream proxy %s is not resolved: %v", u.host, err), isTimeout(err)}
		}
	}
	c, to, err := d.first(ctx, addrs, u.port)
	if err != nil {
		return Result{}, &Failure{"the upstream proxy: " + err.Error(), isTimeout(err)}
	}
	if t.Plain && byUpstream { // with an address in absolute form the origin would be told that address as its name
		return Result{Conn: c, Addr: to, ByUpstream: byUpstream, Via: authority, Authorization: u.authorization}, nil
	}
	if err := u.ask(ctx, c, authority); err != nil {
		c.Close()
		return Result{}, err
	}
	return Result{Conn: c, Addr: to, ByUpstream: byUpstream}, nil
}

func (u *Upstream) ask(ctx context.Context, c *net.TCPConn, authority string) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if u.authorization != "" {
		head += "Proxy-Authorization: " + u.authorization + "\r\n"
	}
	status, err := 0, error(nil)
	if _, err = io.WriteString(c, head+"\r\n"); err == nil {
		status, err = readAnswer(c)
	}
	if !stop() {
		return &Failure{"the upstream proxy does not answer in time", true}
	}
	switch {
	case err != nil:
		return &Failure{"the upstream proxy: " + short(err), isTimeout(err)}
	case status/100 == 2:
		return nil
	case status == 407 && u.authorization != "":
		return &Failure{"the upstream proxy does not accept the user and password that it was given (407)", false}
	case status == 407:
		return &Failure{"the upstream proxy wants a user and password (407)", false}
	}
	return &Failure{fmt.Sprintf("the upstream proxy answers %d", status), status == 504}
}

// readAnswer reads to the empty line and not one octet further: what follows belongs to the tunnel.
func readAnswer(r io.Reader) (int, error) {
	var head []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) == maxAnswer {
			return 0, fmt.Errorf("an answer of more than %d octets", maxAnswer)
		}
		if _, err := io.ReadFull(r, one); err != nil {
			return 0, fmt.Errorf("the answer ends early: %w", err)
		}
		head = append(head, one[0])
	}
	line, _, _ := strings.Cut(string(head), "\r\n")
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, fmt.Errorf("answer %s is no HTTP status line", hostmatch.Quote(line))
	}
	return n, nil
}
