// Package native builds a cell from clone flags and mounts: user, mount, pid, ipc, uts, net and
// cgroup namespaces, an own root, pins and masks.
//
// The work is split over three processes. The supervisor calls Start, which forks the keeper
// with an identity map of one id. The keeper (Build, StartCell, Cover) makes the root and stays
// outside the pid namespace, so that nothing inside can see or signal it; it keeps the
// capabilities of the session's own user namespace to put back a pin that fell off. The cell
// (Enter) mounts its own /proc and gives up every capability before it reads a command.
//
// It may be imported by runtime/cell, runtime/session, cmd/coworker-cell and integration. It
// imports enforce, enforce/enforcetest, x/sys and the standard library only, because it is
// linked into the cell. It makes no decision about what is visible: the Spec says that.
package native
