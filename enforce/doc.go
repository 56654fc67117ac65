// Package enforce is the vocabulary of the walls: what a session asks for (Spec), what was
// proved (Probe, Report), how strong that is (Level) and which backend keeps it (Backend).
//
// It holds values and pure functions only, so it compiles and is tested on every system.
// It may be imported by runtime, integration and cmd, and by the packages below enforce. It
// imports nothing but the standard library; mechanisms (landlock, seccomp, native, bare, …)
// are packages below it and must not be imported from here.
package enforce
