//go:build !linux

package seccomp

import "fmt"

// Load reports that there is no seccomp here.
func Load(v Variant) error { return fmt.Errorf("%w: variant %q needs Linux", ErrUnsupported, v) }
