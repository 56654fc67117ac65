// Package dns is the resolver inside a cell. It answers from rules and from memory alone: allowed names get synthetic
// addresses, which lead to the proxy by a redirect, and everything else is refused with a reason. Nothing is forwarded, so
// a question can carry nothing out.
//
// The engine of the proxy may import it. Real addresses are looked up where connections are dialled, and who may connect
// is decided there again; neither belongs here.
package dns
