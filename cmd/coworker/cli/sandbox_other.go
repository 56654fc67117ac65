//go:build !linux

package cli

import "context"

func sandboxSetup(context.Context, *environment, setupFlags) error  { return errNoBackend }
func sandboxRemove(context.Context, *environment, setupFlags) error { return errNoBackend }
func sandboxStatus(context.Context, *environment, bool) error       { return errNoBackend }
func sandboxVerify(context.Context, *environment, bool, execFlags) error {
	return errNoBackend
}
