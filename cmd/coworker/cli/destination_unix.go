//go:build unix

package cli

import "syscall"

// nonBlocking makes opening a pipe without a reader an error instead of a wait.
const nonBlocking = syscall.O_NONBLOCK
