// Package wallsd is the helper of people without privileges: a ward (runtime/ward) that a process with privileges holds, the
// protocol to it, and the client that a session uses.
//
// One connection is one session. The server believes nothing that it is told: who asks comes from the kernel, a process is
// named by a descriptor and never by a number, and what a session may do is what its user could do to itself. It may be
// imported by runtime/session, cmd/coworker, cmd/coworker-wallsd and integration. What must not be added: a decision about
// what may run, a network, a path that is opened for somebody else, or state that outlives a connection.
package wallsd
