// Package network makes a host and a network behind it for tests that measure or load the proxy: two network namespaces
// joined by one cable, and a hosts file of their own. It needs root.
//
// Tests below integration import it. Servers and what is asked of them do not belong here.
package network
