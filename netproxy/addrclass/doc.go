// Package addrclass says what kind of address a name resolved to, and whether a rule lets the proxy dial it.
//
// A check by name is worth nothing if the name's owner can point it at 127.0.0.1 or at a cloud's metadata service, so
// every resolved address passes here before it is dialled, and the dialled address is the one that was checked.
// net/netip is not enough: it calls ::169.254.169.254, 64:ff9b::a9fe:a9fe and 100.100.100.200 global unicast.
//
// The netproxy packages and the command that checks decision rows may import it. It is pure: no resolver, no clock, no
// look at the machine's interfaces (their addresses come in as values). Names and ports do not belong here.
package addrclass
