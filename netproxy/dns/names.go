package dns

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"coworker/netproxy/hostmatch"
)

// The ranges of synthetic addresses: benchmarking (RFC 2544, RFC 6890), which no host on the Internet has, and a unique
// local prefix (RFC 4193). enforce/redirect makes routes for the same ones.
var (
	Range4 = netip.MustParsePrefix("198.18.0.0/15")
	Range6 = netip.MustParsePrefix("fdc0:c0c0:c0c0::/64")
)

const (
	// MaxNames is how many names of one session get addresses. Under a wildcard or --net open a program inside can ask
	// for as many as it likes. The IPv4 range has room for four times as many, but each costs the proxy up to some 500
	// bytes for as long as the session lives, so this is 16 MiB; a browser's working day is a few thousand names.
	MaxNames = 1 << 15

	first = 2 // 198.18.0.0 looks like a network, and 198.18.0.1 is the cell's own address (enforce/redirect)
)

// Names gives each name an address of its own per family, which stays its own until the session ends: a program may keep
// an address for hours, and a connection to it must never become one to another name. It may be used from several
// goroutines. NewNames makes it.
type Names struct {
	max   int
	mu    sync.RWMutex
	index map[hostmatch.Host]int
	hosts []hostmatch.Host
}

// NewNames starts a session's names.
func NewNames() *Names { return newNames(MaxNames) }

func newNames(most int) *Names {
	return &Names{max: most, index: map[hostmatch.Host]int{}}
}

// For is the addresses of an allowed name. They are given out at the first call. ok is false for something that is no
// name, and when there are none left; a name that was refused so may not be published.
func (n *Names) For(h hostmatch.Host) (v4, v6 netip.Addr, ok bool) {
	if h.Name() == "" {
		return netip.Addr{}, netip.Addr{}, false
	}
	n.mu.RLock()
	i, known := n.index[h]
	n.mu.RUnlock()
	if !known {
		if i, ok = n.add(h); !ok {
			return netip.Addr{}, netip.Addr{}, false
		}
	}
	v4, v6 = synthetic(i)
	return v4, v6, true
}

func (n *Names) add(h hostmatch.Host) (int, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, known := n.index[h]; known {
		return i, true
	}
	if len(n.hosts) >= n.max {
		return 0, false
	}
	i := len(n.hosts)
	n.index[h] = i
	n.hosts = append(n.hosts, h)
	return i, true
}

// Host is the name that an address was given to.
func (n *Names) Host(a netip.Addr) (hostmatch.Host, bool) {
	i, ok := position(a)
	if !ok {
		return hostmatch.Host{}, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if i >= len(n.hosts) {
		return hostmatch.Host{}, false
	}
	return n.hosts[i], true
}

// IsSynthetic says that an address is in one of the ranges, whether or not it was given to a name. Such an address is
// never dialled.
func IsSynthetic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return Range4.Contains(a) || Range6.Contains(a)
}

func synthetic(i int) (v4, v6 netip.Addr) {
	b4, b6 := Range4.Addr().As4(), Range6.Addr().As16()
	binary.BigEndian.PutUint32(b4[:], binary.BigEndian.Uint32(b4[:])+uint32(i+first))
	binary.BigEndian.PutUint64(b6[8:], uint64(i+first))
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6)
}

// position undoes synthetic. Names checks the upper end.
func position(a netip.Addr) (int, bool) {
	a = a.Unmap()
	var n uint64
	switch {
	case Range4.Contains(a):
		b, base := a.As4(), Range4.Addr().As4()
		n = uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:]))
	case a.Zone() == "" && Range6.Contains(a):
		b := a.As16()
		n = binary.BigEndian.Uint64(b[8:])
	}
	if n < first || n >= first+MaxNames {
		return 0, false
	}
	return int(n - first), true
}
