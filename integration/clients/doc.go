// Package clients runs the programs that people use every day (curl, wget, git, ssh, Node, npm, pip, Python, Go; with the
// tag testclients also Java, psql and cargo) unmodified behind coworker's walls: the allowed host works, another existing
// host is refused at once and the reason is on stderr.
//
// The servers are real and live in a network of the test's own: addresses of 203.0.113.0/24 (RFC 5737), names in a hosts
// file and an authority in a certificate bundle that only processes started there see. Every client is first run there
// without coworker against both hosts, so that a refusal is coworker's work. Only tests of the project read this package;
// nothing imports it, and it imports no package of the product: what it knows of coworker is the command line.
package clients
