//go:build !linux

package cli

import "errors"

var errNoBackend = &wallsError{err: errors.New("no backend in this build"), hint: "walls are built on Linux; the other commands work here"}
