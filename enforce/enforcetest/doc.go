// Package enforcetest lets a test build leave out one wall, to show that the battery notices.
//
// Code that raises a wall asks Off at that place and skips the wall if it says so. Binaries
// built without the tag walltest get a constant false, which the compiler removes together
// with the branch: a release has no switch that opens a wall, and the tests of this package
// look for one in its symbols.
//
// Besides the walls, "ebpf" names the programs of enforce/egress, which are a second wall.
//
// It may be imported by enforce/native, enforce/landlock, enforce/seccomp, runtime/cell and runtime/session. It
// imports enforce only, and must not grow any other way to weaken a session.
package enforcetest
