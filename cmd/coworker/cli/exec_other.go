//go:build !linux

package cli

import "context"

func execute(context.Context, *environment, execFlags, *report) error { return errNoBackend }
