// Package request parses what a client says first: an HTTP/1.1 request head, a SOCKS5 greeting and request, and the
// framing of a chunked body.
//
// Each is parsed strictly, and once; the result is what gets decided on and what is sent on. net/http is not used for
// this: it reads CONNECT a:443:443, user information, commas, port 65536 and zone ids without complaint, leaves URL.Host
// empty for http:evil/ and //evil/, and accepts bare line feeds. Whatever two readers could take differently is refused
// with 400 and closes the connection; nothing is repaired (RFC 9112 sections 2.2, 3, 5 and 6, and its section 11.2 on
// smuggling).
//
// The parsers take the bytes read so far and answer ErrIncomplete until there are enough; the caller owns the reading
// and its deadline. All sizes are bounded here.
//
// The netproxy packages and the command that checks decision rows may import it. It is pure: no reader, no clock, no
// state. Whether a host is allowed is decided in hostmatch, and what an address is in addrclass.
package request
