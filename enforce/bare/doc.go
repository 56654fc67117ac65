// Package bare starts a cell without namespaces, for hosts that do not allow them: Landlock and
// seccomp only. It is partial at best, and refuses where the kernel has no Landlock.
//
// It may be imported by runtime/session and integration. It imports enforce, enforce/landlock,
// x/sys and the standard library. It must not pretend: what Landlock and seccomp cannot keep is
// reported as missing by the probes, never worked around here.
package bare
