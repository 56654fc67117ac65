// Package redirect tests the namespace of a cell against the parts of the proxy that serve it from outside: sockets made
// inside, the resolver and the original destination outside, ordinary programs inside. It has tests only, so nothing
// imports it. The walls and the proxy process around these parts are tested elsewhere.
package redirect
