// Package netproxy is the proxy of one session: the only way out of a cell. It speaks HTTP proxy and SOCKS5 on one port and
// takes redirected connections on another, decides on each by name and port, dials exactly an address that was judged, looks
// at what goes through, and tells every attempt.
//
// It runs in a process of its own (cmd/coworker-proxy), started by the supervisor; netproxy/control is the line between
// the two. The bytes of clients are read by netproxy/request and netproxy/tlshello only; goproxy carries the HTTP exchanges
// that they allow. A panic ends the process: a proxy that broke must not go on.
//
// Commands may import it. Rules, address classes, parsing, dialling and certificates have packages of their own below it.
package netproxy
