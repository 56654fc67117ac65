// Package cgroup bounds, freezes and kills a session through the kernel's control groups: cgroup
// v2, v1, and hybrid hosts where v2 has no controllers and v1 hierarchies have them.
//
// It may be imported by runtime/session and integration. It imports enforce, x/sys and the
// standard library. The supervisor itself and the keeper are never members: a frozen supervisor
// could not thaw anything. No descriptor of a group is ever handed to a cell: through an open
// cgroup.procs a process can move others (measured, see docs/walls.md).
package cgroup
