// Package netns gives tests network namespaces of their own, so that servers, addresses and routes of a test are nobody
// else's.
//
// The packages below integration import it, nobody else. It knows nothing about which addresses a test needs.
package netns
