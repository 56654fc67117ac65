package tlshello

import "coworker/netproxy/hostmatch"

// Check says whether a hello may go to host. A tunnel by name needs that name in clear. A tunnel to an address that a rule
// lists has none to show (RFC 6066 section 3 keeps addresses out of server_name), so there the extension must be absent;
// with a name in it the hello would pick a site that no rule is about.
//
// Raw tunnels are not checked at all: the caller asks hostmatch.Decision.Raw first.
func (h *Hello) Check(host hostmatch.Host) error {
	_, literal := host.Addr()
	switch {
	case h.ECH:
		return bad("encrypted ClientHello: the name behind it cannot be seen")
	case literal && h.Name.IsZero():
		return nil
	case literal:
		return bad("server name %s in a tunnel to the address %s", h.Name, host)
	case h.Name.IsZero():
		return bad("no server name in the ClientHello for %s", host)
	case h.Name != host:
		return bad("server name %s in a tunnel to %s", h.Name, host)
	}
	return nil
}
