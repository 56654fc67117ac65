// Package hostmatch reads host names and rules, and says whether a rule allows a host and port.
//
// There is one parser for names. Everything that carries one (a request line, a Host header, a SOCKS5 request, a
// ClientHello, a DNS question, a rule) goes through it and yields a Host, which is compared, resolved and dialled in that
// one form; most bypasses of such proxies come from two parts reading one text differently. Odd spellings are refused
// with the position and the reason, not repaired.
//
// Rules have the form HOST[:PORT][=CIDR][+raw]; see ParseAllow.
//
// The netproxy packages, the command that checks decision rows and the code that turns flags into rules may import it.
// It is pure: no resolver, no clock, no state. Judging addresses belongs in addrclass, HTTP in request.
package hostmatch
