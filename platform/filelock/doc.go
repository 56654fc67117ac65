// Package filelock takes advisory locks on open files and folders, with a bounded wait. The kernel
// drops such a lock however its holder ends, so it tells what is in use from what a killed process
// left behind.
//
// It may be imported by enforce/cgroup, runtime/session and other owners of folders that several
// coworker processes share. It must not learn what the files are.
package filelock
