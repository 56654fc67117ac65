// Command coworker-wallsd holds the control groups and kernel programs of sessions whose users may not make them. It runs as
// root, listens on one Unix socket and has nothing to say about what a session may do. See docs/operations.md.
package main
