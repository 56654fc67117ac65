// Package check runs rows of a decision corpus through the code that decides in the proxy, and nothing else: each row is
// turned into the bytes a client would send, and those go through request, hostmatch, addrclass and tlshello.
//
// A row has an allow list and a request made of segments joined by " | ". The first segment is the request line
// (CONNECT h:p, GET http://… HTTP/1.1, SOCKS5 CONNECT h:p, DNS A name, UDP h:p, TCP h:p); the others add to it:
//
//	Name: value          a header line, sent as it stands
//	SNI=name             a ClientHello with that name ("" or "absent": without one); "name split over two records"
//	                     fragments it, ", second part other" puts other into the second record
//	ALPN=a,b  ECH        more about that ClientHello
//	FIRSTBYTES text      the first bytes in the tunnel, instead of a ClientHello
//	INNER line           a request inside TLS that was opened; ":authority=h" for HTTP/2
//	DNS name=ip,ip       what the resolver answers; " then " separates answers of later lookups
//	RESPONSE text        what the origin answered; it decides nothing
//	THEN line            the next request, outside or inside as the one before; the verdict is for the last one
//	INJECT field for h   the proxy would add a credential of h
//	BODY text            the body, with \r \n \t \0 \\ and \xHH
//
// The command "coworker proxy check" imports it. It does no input or output but on the reader and writer of Run, and
// must not get rules of its own: a row that fails is answered by the packages that decide.
package check
