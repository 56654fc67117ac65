package guard

import (
	"fmt"
	"os"
	"slices"
	"strings"
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
	return nil
}

const lsmList = "/sys/kernel/security/lsm"

func securityModules() ([]string, error) {
	list, err := os.ReadFile(lsmList)
	return strings.Split(strings.TrimSpace(string(list)), ","), err
}
