// Package dial opens connections to where a decision allows: it resolves a name once, judges every address of the answer,
// and dials exactly an address that was judged, directly or through the company's proxy.
//
// The netproxy packages may import it. It decides nothing by name: that is hostmatch; what bytes mean is judged by its
// callers. Resolver, interface addresses and the connecting itself come in as values.
package dial
