// Package session is the supervisor: it starts a cell through a backend, has the walls proved
// from inside and checks them from outside, refuses when one does not hold, runs commands, watches
// what can change while the session lives, and leaves nothing behind.
//
// It may be imported by cmd and integration. It imports enforce, runtime/wire and platform; it
// decides nothing about what may run (policy) and nothing about what is visible (wallspec).
package session
