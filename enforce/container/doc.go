// Package container is the pure Go side of the backend container: what the supervisor and the helper coworker-box say to each
// other, the mounts that the helper needs, and whether this machine can use it.
//
// The helper has libcontainer put a process into a container: its control group with device rules, its labels, its own mount,
// ipc, uts and network namespaces, few capabilities. In there the cell's program forks the keeper as the backend native does,
// so the root, the pins and the cell are the same. It may be imported by runtime/session, cmd/coworker-box and integration.
// It imports enforce, x/sys and the standard library; libcontainer is imported by the helper alone.
package container
