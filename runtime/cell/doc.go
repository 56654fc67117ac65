// Package cell is the process behind the wall: PID 1 of the session's pid namespace, which starts
// the commands of the session and hands their ends to the supervisor.
//
// It is trusted until its first command runs and untrusted from then on, because its own children
// share its user id. Nothing that decides, records or keeps a secret may be added here, and
// neither may a network client, a parser of files or anything that waits for a child's bytes: the
// cell passes descriptors, it never sees what flows through them. It may be imported by
// cmd/coworker-cell and by integration only, and it imports runtime/wire, the mechanisms of
// enforce, x/sys and the standard library without package net.
//
// # After Ready
//
// Serve reads the wire until it ends. Four kinds of goroutines work for it:
//
//   - the dispatcher, Serve itself, reads one frame at a time, acts on it and answers. A
//     supervisor that does not read blocks it in Send: that is the back-pressure;
//   - the reaper is the only caller of wait: it reaps the commands and every orphan that the
//     kernel gives to PID 1. It never sends, so a supervisor that does not read leaves no zombies;
//   - the writer sends Exited for the commands that the reaper found. Its queue holds at most one
//     entry for each running command, so that it needs no other bound;
//   - one goroutine for each Dial in flight, at most maxDials.
//
// When the wire ends, in whatever way, Serve kills every process and returns; the caller exits,
// and the kernel takes the namespace with it.
//
// # Signals from the inside
//
// The kernel drops signals to PID 1 that have no handler, but the Go runtime installs handlers,
// and TERM, HUP or QUIT from a child would end the session. Serve therefore catches every signal
// and does nothing with it. It must not ignore them instead: execve(2) keeps an ignored signal
// ignored and resets a caught one. A child that forges a fault (sigqueue(3) with SIGSEGV and a
// negative si_code) still ends the cell, and with it its own session: nothing is gained by it.
//
// A child that stops everything it can reach (kill(-1, SIGSTOP)) may catch a new command between
// vfork and exec, and the dispatcher then waits with it. The supervisor must bound its wait for
// Started and kill the cell from outside, which always works.
package cell
