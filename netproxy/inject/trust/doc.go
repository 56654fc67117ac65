// Package trust makes what programs inside a cell need to believe the authority of their session: a bundle of
// certificates, a trust store for Java, and the variables that lead programs to them.
//
// runtime/session imports it. It reads and writes no files: the caller gives the roots of the system and puts the results
// where the paths say. It is apart from netproxy/inject because the proxy, which parses hostile bytes, needs no PKCS #12.
package trust
