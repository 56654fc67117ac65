// Package bench measures the budgets of the design as ratios: ours, the bare command and a peer run in turn, round by
// round, in one process on one machine, so that load hits all of them alike. Nothing here fails for being slow: numbers
// of a shared machine are for people.
//
// `go test -bench . ./integration/bench` prints the usual lines and, at the end, one table: what, ours, peer, ratio,
// budget, met or missed. A peer that is not installed is left out, with a note. Run as root it measures root and an
// unprivileged user, otherwise the user who runs it. `make build` comes first.
//
// Nothing imports it. What must not be added: assertions about time, and tests of behaviour.
package bench
