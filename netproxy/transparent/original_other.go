//go:build !linux

package transparent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// OriginalDestination has no meaning here: cells without network namespaces get no redirected connections.
func OriginalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	return netip.AddrPort{}, fmt.Errorf("original destination of %s: %w on this system", c.LocalAddr(), errors.ErrUnsupported)
}
