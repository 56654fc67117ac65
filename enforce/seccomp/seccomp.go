// Package seccomp is the kernel wall: an allow-list of system calls that is compiled by libseccomp when Coworker is
// built, committed next to this file, embedded, and loaded in pure Go by the cell as the last step before it runs
// somebody else's code. The cell (runtime/cell), its backends and the probe battery may import it. It must not learn
// about policies, sessions or paths, it must not build filters at run time, and it imports no cgo.
//
// # What is refused
//
// A call that no table mentions gets ENOSYS, like on a kernel that does not have it, so that libc, libuv, Go, Java and
// the rest take the way they take on older kernels. The refusals that are not ENOSYS:
//
//	foreign architecture (int 0x80), x32 numbers     the process is killed
//	clone, unshare with a CLONE_NEW* flag; setns     EPERM
//	mount, umount2, pivot_root, chroot, open_tree,   EPERM
//	  move_mount, fsopen … fspick, mount_setattr
//	ptrace, process_vm_readv, process_vm_writev      EPERM, allowed by Debug
//	pidfd_getfd, process_madvise, kcmp               EPERM
//	bpf, userfaultfd, fanotify_*                     EPERM
//	perf_event_open                                  EACCES
//	name_to_handle_at, open_by_handle_at             EPERM
//	setting a clock or a host name, modules, kexec,  EPERM
//	  swap, reboot, acct, quotactl, syslog, iopl,
//	  ioperm, vhangup
//	personality but 0, query, ADDR_NO_RANDOMIZE      EINVAL
//	seccomp with a listener, or an unknown operation EINVAL
//	ioctl TIOCSTI, TIOCLINUX, TIOCSETD               EIO, ENOTTY, EINVAL
//	socket families but UNIX, INET, INET6, NETLINK   EAFNOSUPPORT (VSOCK, PACKET, ALG, XDP, BLUETOOTH, …)
//	INET types but STREAM and DGRAM                  EPERM for RAW, else ESOCKTNOSUPPORT
//	INET protocols but TCP and UDP                   EPROTONOSUPPORT (MPTCP, SCTP, DCCP, UDPLITE, ICMP, SMC)
//	NETLINK protocols but ROUTE                      EPROTONOSUPPORT
//	socketpair but UNIX                              EOPNOTSUPP
//	MSG_FASTOPEN in sendto, sendmsg, sendmmsg        EOPNOTSUPP
//	TCP_FASTOPEN_CONNECT, TCP_ULP                    ENOPROTOOPT
//	mknod of a device, or with set-id bits           EPERM
//	renameat2 with RENAME_WHITEOUT                   EINVAL
//	S_ISUID by chmod, fchmod, fchmodat, fchmodat2    EPERM
//	S_ISUID or S_ISGID by open, openat, creat        EPERM
//
// ENOSYS on purpose, though most kernels have them: clone3 and openat2 (their flags lie in memory, where a filter
// cannot look; callers fall back to clone and openat), io_uring_* (its operations pass no filter), keyctl, add_key,
// request_key (keyrings are not in a namespace), the NUMA calls, statmount, listmount, listns, lsm_*, modify_ldt,
// memfd_secret, remap_file_pages, process_mrelease, file_getattr, file_setattr.
//
// The set-group-id bit stays allowed in the chmod family: on folders it is ordinary (git init --shared), and a filter
// cannot tell a folder from a file. The set-user-id bit is refused although nothing inside can use it, because the
// file would keep it in the person's folder outside.
//
// Integer arguments are compared in their low 32 bits, as the kernel reads them.
//
// # Variants
//
// Native is for backends with own namespaces. Debug is Native plus ptrace and process_vm_*. Bare is for the backend
// without namespaces, where the host's sockets, IPC objects and processes are in reach and Landlock stops only TCP
// connect and bind (up to ABI 8). There the filter also refuses: socket(AF_UNIX) (EAFNOSUPPORT; the session bus or a
// container engine is one connect away; socketpair stays), UDP (EACCES), listen (EOPNOTSUPP; it binds an unbound
// socket to a port without Landlock being asked), System V IPC and POSIX message queues (ENOSYS), and prlimit64 on
// anything but the caller itself (EPERM). BareOffline also refuses INET and INET6 (EAFNOSUPPORT), and the ways to shorten
// a file without opening it for writing (EACCES: truncate, and O_TRUNC in open and openat with access mode O_RDONLY or
// 3), of which Landlock knows nothing below ABI 3. What neither stops:
// changing the priority and scheduling of host processes of the same uid, whose calls libraries need for their own
// threads, and reading routes and addresses of the host by NETLINK_ROUTE.
package seccomp

import (
	"embed"
	"errors"
	"fmt"
)

//go:generate go run -tags seccompgen ./seccompgen

//go:embed *.bpf
var programs embed.FS

// Variant names one of the committed filters.
type Variant string

// The variants. There is no zero value that means one of them: a variant that was not chosen is an error.
const (
	Native Variant = "native"
	Debug  Variant = "debug"
	Bare   Variant = "bare"
	// BareOffline is Bare without INET, INET6 and truncate, for kernels whose Landlock can limit neither TCP (below ABI
	// 4) nor truncation (below ABI 3).
	BareOffline Variant = "bare-offline"
)

// Variants lists all of them.
func Variants() []Variant { return []Variant{Native, Debug, Bare, BareOffline} }

// Architectures lists the values of GOARCH there are filters for.
func Architectures() []string { return []string{"amd64", "arm64"} }

// ErrUnsupported is wrapped by Load where there is no seccomp, and by Program where there is no such filter.
var ErrUnsupported = errors.New("seccomp filter unsupported")

// Program returns the committed filter of a variant for an architecture in GOARCH's spelling.
func Program(v Variant, arch string) ([]Instruction, error) {
	name, err := file(v, arch)
	if err != nil {
		return nil, err
	}
	raw, err := programs.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return decode(raw)
}

func file(v Variant, arch string) (string, error) {
	if arch != "amd64" && arch != "arm64" {
		return "", fmt.Errorf("%w: architecture %q", ErrUnsupported, arch)
	}
	switch v {
	case Native:
		return arch + ".bpf", nil
	case Debug, Bare, BareOffline:
		return arch + "-" + string(v) + ".bpf", nil
	}
	return "", fmt.Errorf("%w: variant %q", ErrUnsupported, v)
}
