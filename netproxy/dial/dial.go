package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"coworker/netproxy/addrclass"
	"coworker/netproxy/hostmatch"
)

// Bounds of one connection. A person waits for the total.
const (
	maxAddresses = 64 // of one answer
	eachTime     = 4 * time.Second
	totalTime    = 9 * time.Second
)

// Refusal says that an address must not be dialled.
type Refusal struct {
	Reason string
	// Pin is the network that a rule would have to name for this answer to pass; invalid if no rule helps.
	Pin netip.Prefix
}

func (r *Refusal) Error() string { return r.Reason }

// Failure says that nothing was reached. Timeout tells the slow from the broken.
type Failure struct {
	Reason  string
	Timeout bool
}

func (f *Failure) Error() string { return f.Reason }

// Dialer opens connections. All fields but Upstream must be set.
type Dialer struct {
	// Resolve gives the addresses of a name.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Own gives the addresses of the machine's interfaces now.
	Own func() ([]netip.Addr, error)
	// Connect opens a connection to an address.
	Connect func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	// Upstream is the company's proxy, or nil.
	Upstream *Upstream
}

// Target is what was allowed.
type Target struct {
	Host  hostmatch.Host
	Port  uint16
	Grant addrclass.Grant
	// Plain: HTTP requests in clear text follow. A proxy further out gets them in absolute form: many of them make tunnels
	// to port 443 only.
	Plain bool
}

// Result is an open connection. The caller closes Conn.
type Result struct {
	Conn *net.TCPConn
	Addr netip.AddrPort // of the target; of the upstream proxy if ByUpstream
	// ByUpstream: the proxy further out resolved the name, so no address of it was seen here.
	ByUpstream bool
	// Via is the authority that requests name in absolute form, with Authorization for the proxy; empty: Conn leads to the
	// target itself.
	Via           string
	Authorization string
}

// Dial connects to t within ten seconds. The error is a *Refusal or a *Failure.
func (d *Dialer) Dial(ctx context.Context, t Target) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, totalTime)
	defer cancel()
	through := d.Upstream != nil && !t.Grant.HostService && !d.Upstream.direct(t.Host)
	if through && t.Host.Name() != "" && len(t.Grant.Ranges) == 0 {
		return d.through(ctx, t, t.Host.Authority(t.Port), true)
	}
	addrs, err := d.Checked(ctx, t)
	if err != nil {
		return Result{}, err
	}
	if through {
		return d.through(ctx, t, netip.AddrPortFrom(addrs[0], t.Port).String(), false)
	}
	c, to, err := d.first(ctx, addrs, t.Port)
	return Result{Conn: c, Addr: to}, err
}

// Checked resolves once and judges every address. One that is not allowed refuses them all: an answer that mixes public
// and private addresses is how a name is rebound, and no honest zone needs it.
func (d *Dialer) Checked(ctx context.Context, t Target) ([]netip.Addr, error) {
	addrs, err := d.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	own, err := d.Own()
	if err != nil {
		return nil, &Refusal{Reason: fmt.Sprintf("the machine's own addresses are not known: %v", err)}
	}
	for i, a := range addrs {
		if ok, reason := addrclass.Allowed(a, t.Grant, own); !ok {
			if t.Host.Name() != "" {
				reason = fmt.Sprintf("%s: %s", t.Host, reason)
			}
			return nil, &Refusal{reason, pin(t, a.Unmap(), addrs, own)}
		}
		addrs[i] = a.Unmap()
	}
	return addrs, nil
}

// pin is the network of bad alone, if naming it in a second rule for the name lets the whole answer pass.
func pin(t Target, bad netip.Addr, addrs, own []netip.Addr) netip.Prefix {
	p := netip.PrefixFrom(bad, bad.BitLen())
	if t.Host.Name() == "" || t.Grant.HostService || addrclass.NameableRange(p) != nil {
		return netip.Prefix{}
	}
	grant := addrclass.Grant{Public: t.Grant.Public, Ranges: append([]netip.Prefix{p}, t.Grant.Ranges...)}
	for _, a := range addrs {
		if ok, _ := addrclass.Allowed(a, grant, own); !ok {
			return netip.Prefix{}
		}
	}
	return p
}

func (d *Dialer) addresses(ctx context.Context, t Target) ([]netip.Addr, error) {
	if a, ok := t.Host.Addr(); ok {
		return []netip.Addr{a}, nil
	}
	if t.Grant.HostService {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addrs, err := d.Resolve(ctx, t.Host.Name())
	switch {
	case err != nil:
		return nil, &Failure{fmt.Sprintf("%s is not resolved: %s", t.Host, short(err)), isTimeout(err)}
	case len(addrs) == 0:
		return nil, &Failure{fmt.Sprintf("%s has no address", t.Host), false}
	case len(addrs) > maxAddresses:
		return nil, &Refusal{Reason: fmt.Sprintf("%s has %d addresses, more than %d", t.Host, len(addrs), maxAddresses)}
	}
	return addrs, nil
}

// first tries the addresses in order.
func (d *Dialer) first(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, netip.AddrPort, error) {
	var last error
	var to netip.AddrPort
	for _, a := range addrs {
		if last != nil && ctx.Err() != nil {
			break
		}
		to = netip.AddrPortFrom(a, port)
		c, err := d.one(ctx, to)
		if err == nil {
			return c, to, nil
		}
		last = err
	}
	return nil, to, &Failure{fmt.Sprintf("%s is not reached: %s", to, short(last)), isTimeout(last)}
}

func (d *Dialer) one(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, eachTime)
	defer cancel()
	return d.Connect(ctx, to)
}

// short leaves out what the caller has said already: operation, network and addresses.
func short(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.Err
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
