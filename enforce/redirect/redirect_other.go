//go:build !linux

package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// Install needs network namespaces.
func Install([]netip.Addr) (Notes, error) { return Notes{Mode: ModeNone}, unsupported() }

// Verify needs network namespaces.
func Verify(Notes) error { return unsupported() }

// Listen needs network namespaces.
func Listen(bool) ([]*os.File, error) { return nil, unsupported() }

func unsupported() error {
	return fmt.Errorf("redirect in a network namespace: %w on this system", errors.ErrUnsupported)
}
