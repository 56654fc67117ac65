// Package transparent says where a redirected connection wanted to go before the redirect changed its destination.
//
// The engine of the proxy may import it. What to do with the destination is not its business: a synthetic address has to
// be turned into a name (netproxy/dns), everything else is judged like any other address.
package transparent
