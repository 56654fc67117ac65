//go:build !linux

package cli

import "context"

func runDemo(context.Context, *environment) error  { return errNoBackend }
func playAgent(*environment, string, string) error { return errNoBackend }
