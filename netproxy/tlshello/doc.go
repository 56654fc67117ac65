// Package tlshello reads the ClientHello at the beginning of a tunnel and says whether it agrees with the name that the
// tunnel was allowed for.
//
// A tunnel to an allowed host is a tunnel to whatever that host's edge serves. The server name in the hello is the last
// thing that can be read without opening TLS, so it must be there, in clear, and be the allowed name. Hellos split over
// records are put together first; what is malformed is refused, because a lenient server may read it otherwise.
//
// The netproxy packages and the command that checks decision rows may import it. It is pure: bytes in, verdict out.
// Reading from connections, certificates and interception do not belong here.
package tlshello
