package bare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/landlock"
)

// minABI is the first Landlock ABI that allows renames between folders (REFER); below it git and
// builds do not work.
const minABI = 2

// Available asks the kernel for Landlock.
func Available(context.Context) enforce.Availability {
	a := enforce.Availability{Backend: enforce.Bare}
	abi, err := landlock.ABI()
	switch {
	case errors.Is(err, landlock.ErrDisabled):
		a.Cause, a.Remedy = "Landlock is built into the kernel and switched off at boot", "add landlock to lsm= on the kernel command line and boot again"
	case err != nil:
		a.Cause, a.Remedy = "the kernel has no Landlock: "+err.Error(), "use a kernel from 5.19 on with CONFIG_SECURITY_LANDLOCK"
	case abi < minABI:
		a.Cause, a.Remedy = fmt.Sprintf("Landlock ABI %d cannot allow renames between folders", abi), "use a kernel from 5.19 on"
	default:
		a.OK = true
	}
	return a
}

// Start forks the cell. The thread that calls it must live as long as the cell (parent-death
// signal). wire becomes descriptor 3. The caller owns the process and waits for it.
func Start(s enforce.Spec, binary string, argv []string, stderr, wire *os.File) (*os.Process, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(s.Identity.UID), Gid: uint32(s.Identity.GID), Groups: []uint32{}, NoSetGroups: setgroupsDenied()}
	}
	// What this process itself was started with, a shell's redirections for example, must not come
	// along: the cell would hold a file of the host. There is no keeper here to filter it. Linux before
	// 5.11 has no such close_range(2); there the battery finds what is left.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	p, err := os.StartProcess(binary, argv, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, stderr, wire}, Sys: attr,
	})
	if err != nil {
		return nil, fmt.Errorf("start the cell: %w", err)
	}
	return p, nil
}

// setgroupsDenied reports whether this user namespace does not allow setgroups(2), as where an
// unprivileged user made it (user_namespaces(7)); then there are no groups to drop either.
func setgroupsDenied() bool {
	data, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(data)) == "deny"
}
