package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// System is a Dialer over this machine's resolver and interfaces.
func System() *Dialer {
	r := &net.Resolver{PreferGo: true}
	d := &net.Dialer{}
	return &Dialer{
		Resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
			if strings.Contains(name, ".") {
				name += "." // no search list: another name than the one that was judged
			}
			return r.LookupNetIP(ctx, "ip", name)
		},
		Own: fresh(ownAddresses, ownFresh, time.Now),
		Connect: func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			// Not DialTCP: without a local address it binds one, which the process has given up the right to.
			c, err := d.DialContext(ctx, "tcp", to.String())
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		},
	}
}

// ownFresh is how old the list of the machine's addresses may be. The kernel lists them in a dump that takes as long as
// connecting does.
const ownFresh = time.Second

// fresh keeps an answer of list for a while. An error is not kept.
func fresh(list func() ([]netip.Addr, error), age time.Duration, now func() time.Time) func() ([]netip.Addr, error) {
	var mu sync.Mutex
	var kept []netip.Addr
	var at time.Time
	return func() ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		if t := now(); kept == nil || t.Sub(at) >= age || t.Before(at) {
			got, err := list()
			if err != nil {
				return nil, err
			}
			kept, at = got, t
		}
		return kept, nil
	}
}

func ownAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list interface addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}
