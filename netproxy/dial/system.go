package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
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
		Own: ownAddresses,
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
