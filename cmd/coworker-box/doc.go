// Command coworker-box puts the processes of a session into a container of opencontainers/runc's libcontainer: the backend
// container. It needs cgo, so it is optional, and coworker starts it only if it was built together with it. It does nothing
// when started by hand.
package main
