//go:build !walltest

package netproxy

import "coworker/netproxy/hostmatch"

// fault does nothing in this build.
func (*engine) fault(hostmatch.Host) {}
