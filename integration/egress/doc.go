// Package egress tries every way that we know to get one word out of a cell, and looks for the word in all frames that
// leave: on every interface of the host, on those of the network behind it, and on the cell's own loopback. It also ends
// the proxy of a session in the middle, which must end the session, and puts liars in its place, which must prevent it.
//
// What no capture can show is not tried: data in the time, the order and the number of connections that rules allow, and a
// request inside TLS that nobody opens, which may name another site of the same server. A rule with a star lets the words
// below it reach the name servers of that domain; one of the ways shows that.
//
// ways.txt lists the ways with what is expected of each; the program in smuggler/ makes them. Only tests of the project
// read this package; nothing imports it. It must not import packages of the product: what it knows of coworker is the
// command line.
package egress

import _ "embed"

//go:embed ways.txt
var waysText string
