// Package wire is the protocol between the supervisor, the keeper and the cell: bounded frames
// over an inherited socket pair, each with a type, a JSON body and at most MaxFiles descriptors.
//
// It may be imported by runtime/cell, runtime/session and integration. It must not learn about
// policy, audit or anything else that stays outside the wall. Everything read from a cell is
// untrusted: bodies are bounded, unknown fields and unexpected types are errors, and descriptors
// that no one asked for are closed.
//
// # Sequence
//
// Keeper: created in the session's user, mount, ipc, uts and net namespaces, outside its pid
// namespace. It stays trusted: it parses only what the supervisor sends.
//
//	supervisor            keeper
//	KeeperSetup      →             the plan
//	                 ←    KeeperPrepared (descriptors: sockets for the proxy) | Failed
//	KeeperStart      →             descriptors: the cell's end of its wire
//	                 ←    KeeperStarted | Failed
//	Repin            →             (any number of times)
//	                 ←    Repinned | Failed
//	KeeperAlone      →             once, out of the session's control group
//	                 ←    KeeperAloneDone
//	                 ←    CellEnded   once, then the keeper exits
//
// Cell: PID 1 of the pid namespace. Trusted until it runs its first command.
//
//	supervisor            cell
//	Begin            →             walls still to raise, probe targets
//	                 ←    Proved | Failed
//	Commit           →
//	                 ←    Ready
//	Exec             →             descriptors: stdin, stdout, stderr (none with TTY)
//	                 ←    Started (descriptor: pty with TTY) | ExecFailed
//	Signal, Resize   →             (any number of times)
//	                 ←    Exited   once for each Started
//	Dial             →
//	                 ←    Dialed (descriptor: a connected socket) | DialFailed
//	Stop             →
//	                 ←    Stopped
//	Continue         →
//	                 ←    Continued
//	KillAll          →
//	                 ←    Killed
//
// Attempt: a process in the host's own namespaces that shows what the second half of the mechanisms keeps by itself. It
// runs nothing of anybody else.
//
//	supervisor            attempt
//	AloneBegin       →
//	                 ←    AloneReady | Failed   what works without walls; then the supervisor moves it into the group
//	AloneGo          →
//	                 ←    AloneDone | Failed    then it exits
//
// End of file on either socket ends the session: the keeper and the cell exit, and with the
// cell its whole pid namespace.
package wire
