// Package credential tests what a person lends a session without letting go of it: credentials that the proxy adds
// outside, answers typed at a terminal, the company's proxy. Coworker runs as built, in a network and mount namespace whose
// hosts file leads to real servers in another one; unmodified clients run inside. It has tests only, so nothing imports it.
// What the parts do by themselves is tested beside them.
package credential
