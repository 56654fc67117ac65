// Package landlock puts the calling process, all its threads and all it starts behind one Landlock ruleset: a strict
// layer over go-landlock that asks the kernel for its ABI, handles every file right of that ABI, and reports exactly
// what it did. The cell (runtime/cell), its backends and the probe battery may import it. It must not learn about
// policies, degrade silently, or stack a second ruleset: a second layer that does not grant REFER breaks every rename
// between folders (EXDEV), even if it handles no file rights.
//
// # What is refused
//
//	read, execute, list outside of the rules        EACCES
//	write, truncate, create, remove outside         EACCES
//	rename or link to a folder with fewer rights    EXDEV or EACCES
//	making a device node, anywhere                  EACCES
//	ioctl of a device that is not in Devices        EACCES (ABI 5, Linux 6.10)
//	connect to an abstract socket from outside      EPERM  (ABI 6, Linux 6.12)
//	signal to a process outside                     EPERM  (ABI 6)
//	connect to a path socket from outside           EACCES (ABI 9)
//	TCP connect and bind, if RestrictTCP            EACCES (ABI 4, Linux 6.7)
//	UDP send and bind, if RestrictTCP               EACCES (ABI 10)
//	mount, umount, pivot_root                       EPERM
//	ptrace of a process outside                     EPERM
//
// # What is not
//
// Landlock has no right for metadata: stat, readlink, access, chdir, chmod, chown, utimes and extended attributes work
// on any path that ordinary permissions allow, also outside of the rules. Listening on a TCP socket that was never
// bound picks a port without asking; MPTCP, SCTP and (below ABI 10) UDP pass; so do VSOCK and netlink, and
// open_tree(2). Path sockets are reachable below ABI 9. The mount wall and package seccomp close these. A descriptor
// opened before Restrict keeps its rights. Processes in the same domain may signal and trace each other.
package landlock

import (
	"errors"
	"fmt"
)

// Errors that Restrict and ABI wrap.
var (
	// ErrNotBuilt: the kernel has no Landlock (ENOSYS), or a seccomp filter says so.
	ErrNotBuilt = errors.New("landlock is not in this kernel")
	// ErrDisabled: the kernel has Landlock and was booted without it (EOPNOTSUPP; lsm= on its command line).
	ErrDisabled = errors.New("landlock is disabled at boot")
	// ErrNoTCP: RestrictTCP needs ABI 4 (Linux 6.7).
	ErrNoTCP = errors.New("landlock cannot restrict TCP on this kernel")
	// ErrNoLog: LogDenials needs ABI 7 (Linux 6.15).
	ErrNoLog = errors.New("landlock cannot log what programs are refused on this kernel")
	// ErrRule: a rule that cannot be what was meant.
	ErrRule = errors.New("bad landlock rule")
	// ErrNotEnforced: the kernel took the ruleset and an attempt that must fail did not.
	ErrNotEnforced = errors.New("landlock is not in force")
)

// Path is one file hierarchy. Symbolic links are followed when the rule is made.
type Path struct {
	Name     string // absolute
	Optional bool   // no error if it does not exist
}

// Paths makes required paths of names.
func Paths(names ...string) []Path {
	paths := make([]Path, len(names))
	for i, name := range names {
		paths[i] = Path{Name: name}
	}
	return paths
}

// Rules say what stays possible. The zero value leaves nothing but metadata and what is open already.
type Rules struct {
	ReadOnly    []Path // read, list and execute
	ReadWrite   []Path // also write, create, remove, and rename between such folders; never device nodes
	Devices     []Path // device nodes, or folders of them (devpts): read, write and ioctl
	List        []Path // names in folders only, with everything below: for a root that mounts bound already
	UnixSockets []Path // servers outside that may be connected to by path; without effect below ABI 9

	// RestrictTCP handles the network rights: TCP from ABI 4 on, UDP too from ABI 10 on, with no port allowed for it.
	// Only for a process that shares its network namespace with the host.
	RestrictTCP bool
	ConnectTCP  []uint16
	BindTCP     []uint16

	// LogDenials has the kernel write audit records about what programs are refused that are started after Restrict, where
	// auditing is on, and none about this process itself, which attacks the walls on purpose (package auditlog).
	LogDenials bool
}

// Applied tells what is in force after Restrict.
type Applied struct {
	ABI       int // what the kernel has
	Used      int // what was used: the newest one this package knows, or 5 if the kernel has the signal scope bug
	HandledFS []string
	Network   []string
	Scopes    []string
	Skipped   []string // optional paths that do not exist
	// Proven is set if an attempt on every thread was refused after the ruleset took effect (ABI 6 and newer, in
	// a binary without cgo). Without it, enforcement on every thread rests on the answer of the kernel to each.
	Proven bool
}

// check refuses rules that contradict themselves, before anything irreversible happens.
func (r *Rules) check() error {
	if !r.RestrictTCP && len(r.ConnectTCP)+len(r.BindTCP) > 0 {
		return fmt.Errorf("%w: %d TCP ports without RestrictTCP", ErrRule, len(r.ConnectTCP)+len(r.BindTCP))
	}
	for _, list := range [][]Path{r.ReadOnly, r.ReadWrite, r.Devices, r.List, r.UnixSockets} {
		for _, p := range list {
			if len(p.Name) == 0 || p.Name[0] != '/' {
				return fmt.Errorf("%w: path %q is not absolute", ErrRule, p.Name)
			}
		}
	}
	return nil
}
