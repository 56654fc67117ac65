package registries

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"coworker/netproxy/addrclass"
	"coworker/netproxy/hostmatch"
)

// Bounds of the lookups. A name that is not resolved in time has no pin, and a refusal says what it needs.
const (
	pinTime = 2 * time.Second
	maxPins = 64
)

// Pins are further rules for those registries of a list that live in a private network, as mirrors of companies do: a rule
// without a network reaches public addresses only. Each names exactly the addresses that resolve gives now. Which name it
// is about was decided by the machine's own configuration; nobody else gets to choose an address here.
func Pins(ctx context.Context, rules []string, resolve func(ctx context.Context, host string) ([]netip.Addr, error)) []string {
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	found := make([][]string, len(rules))
	var work sync.WaitGroup
	for i, text := range rules {
		host, port, err := hostmatch.ParseAuthority(text, 443)
		if err != nil || host.Name() == "" {
			continue // a wildcard or an address
		}
		work.Go(func() {
			addrs, err := resolve(ctx, host.Name())
			if err != nil {
				return
			}
			for _, a := range addrs {
				if pin, ok := pin(a.Unmap()); ok {
					found[i] = append(found[i], host.Authority(port)+"="+pin.String())
				}
			}
		})
	}
	work.Wait()
	out := slices.Concat(found...)
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxPins)]
}

// pin is the network of one address that a rule has to name, and may.
func pin(a netip.Addr) (netip.Prefix, bool) {
	if public, _ := addrclass.Allowed(a, addrclass.Grant{Public: true}, nil); public || !a.IsValid() {
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(a, a.BitLen())
	if addrclass.NameableRange(p) != nil {
		return netip.Prefix{}, false
	}
	ok, _ := addrclass.Allowed(a, addrclass.Grant{Ranges: []netip.Prefix{p}}, nil)
	return p, ok
}
