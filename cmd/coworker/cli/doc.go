// Package cli holds the commands of coworker: flags and words in, calls of the packages that do the work, text and
// exit codes out. It may be imported by cmd/coworker only.
//
// Types of the flag parser stay here. What must not be added: decisions about what is visible (runtime/wallspec),
// about walls (enforce, runtime/session) or about the record (platform/audit), and system calls.
package cli
