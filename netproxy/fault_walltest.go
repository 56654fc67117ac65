//go:build walltest

package netproxy

import "coworker/netproxy/hostmatch"

// fault breaks the proxy of a test build at the word of a client, to show that the session stops.
func (e *engine) fault(h hostmatch.Host) {
	switch h.Name() {
	case "fault-close.probe.internal":
		for _, l := range e.listeners {
			l.Close()
		}
	case "fault-panic.probe.internal":
		panic("a fault that was asked for")
	}
}
