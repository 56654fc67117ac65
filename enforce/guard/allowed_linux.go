package guard

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Allowed says, without loading anything, why Load cannot work here. nil is no promise.
func Allowed() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it takes root, and this process is not", ErrUnsupported)
	}
	if modules, err := securityModules(); err == nil && !slices.Contains(modules, "bpf") {
		return fmt.Errorf("%w: bpf is not among the security modules (%s); start the kernel with lsm=%s,bpf",
			ErrUnsupported, strings.Join(modules, ","), strings.Join(modules, ","))
	}
	if err := ask(); errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the kernel refuses programs for security hooks to this process: %w", ErrUnsupported, err)
	}
	return nil
}

// loadAttributes is the beginning of union bpf_attr for BPF_PROG_LOAD (bpf(2)).
type loadAttributes struct {
	kind, instructions uint32
	code, license      unsafe.Pointer
	_                  [4]uint32
	_                  [2]uint32
	_                  [16]byte
	_                  uint32
	attach             uint32
	_                  [2]uint32
	_                  uint64
	_                  [2]uint32
	_                  uint64
	_                  uint32
	target             uint32
}

// ask loads a program that does nothing, for a hook that does not exist. A kernel that would load one says that the hook
// is wrong; that costs nothing, while to find a hook takes some milliseconds.
func ask() error {
	nothing := [2]uint64{0xb7, 0x95} // r0 = 0; exit
	license := [4]byte{'G', 'P', 'L'}
	attr := loadAttributes{kind: unix.BPF_PROG_TYPE_LSM, instructions: 2, code: unsafe.Pointer(&nothing), license: unsafe.Pointer(&license), attach: unix.BPF_LSM_MAC, target: 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno == 0 {
		return unix.Close(int(fd))
	}
	return errno
}

const lsmList = "/sys/kernel/security/lsm"

func securityModules() ([]string, error) {
	list, err := os.ReadFile(lsmList)
	return strings.Split(strings.TrimSpace(string(list)), ","), err
}
