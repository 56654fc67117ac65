// Package vm boots Debian kernels in an emulator and runs commands inside: the
// kernel matrix of the integration tests. A sandbox is only as good as the
// kernel below it, and a container or a mock shows one kernel only.
//
// Ensure gets a kernel from the package mirror that this machine already uses,
// Boot runs one guest from it, and Compare holds what the product reports
// against the checked-in table levels.json. Emulation is in software, because
// build machines rarely offer KVM, so every guest costs seconds: put all cases
// of a kernel into one boot.
//
// Tests below integration import it; the product never does. Knowledge about
// single walls does not belong here: a case is a command and what it printed.
package vm

import (
	"errors"
	"fmt"

	"coworker/integration/vm/guest"
)

// A Kernel names a Debian kernel line.
type Kernel struct {
	// Name is the version line, such as "6.1".
	Name string
	// Suites are tried in this order; the first that has Package wins. The
	// security suite outlives the main one when a release is archived.
	Suites []string
	// Package is a metapackage that depends on the newest kernel of the line.
	// The cloud kernels differ from the ordinary ones in their drivers only, and
	// are a third of the size.
	Package string
	// Cmdline is added to the kernel command line.
	Cmdline []string
	// LandlockABI is what the kernel must answer; 0 when it has no Landlock.
	LandlockABI int
}

const cloudImage = "linux-image-cloud-amd64"

// Kernels returns the matrix. 5.10 is the oldest supported kernel and predates
// Landlock (5.13), unprivileged overlay mounts (5.11) and mount_setattr (5.12);
// 6.1 has Landlock without TCP rules and scopes; 6.12 has both.
func Kernels() []Kernel {
	return []Kernel{
		{Name: "5.10", Suites: []string{"bullseye", "bullseye-security"}, Package: cloudImage},
		{Name: "6.1", Suites: []string{"bookworm", "bookworm-security"}, Package: cloudImage, LandlockABI: 2},
		{Name: "6.12", Suites: []string{"trixie", "trixie-security"}, Package: cloudImage, LandlockABI: 6},
	}
}

// The protocol's types, under the names that callers use.
type (
	Case   = guest.Case
	Result = guest.Result
)

// Errors that a caller can tell apart. What a guest did is a *BootError that
// wraps one of the first four.
var (
	ErrTimeout    = errors.New("the guest ran out of time")
	ErrPanic      = errors.New("the kernel panicked")
	ErrIncomplete = guest.ErrCut
	ErrSetup      = guest.ErrFatal

	// ErrMissingTool: a program of Packages is not installed.
	ErrMissingTool = errors.New("a needed program is not installed")
	// ErrNoKernel: no configured mirror has the kernel.
	ErrNoKernel = errors.New("no configured package mirror has the kernel")
)

// A BootError is a guest that did not do its work. Its text ends with the tail
// of the console; Console holds what was kept of it.
type BootError struct {
	Kernel  string
	Err     error
	Console string
}

// consoleTail is how much of the console an error message shows.
const consoleTail = 3000

func (e *BootError) Error() string {
	tail := e.Console
	if len(tail) > consoleTail {
		tail = "…" + tail[len(tail)-consoleTail:]
	}
	return fmt.Sprintf("kernel %s: %v\nconsole:\n%s", e.Kernel, e.Err, tail)
}

func (e *BootError) Unwrap() error { return e.Err }
