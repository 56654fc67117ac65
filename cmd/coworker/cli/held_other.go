//go:build !linux

package cli

import "context"

func heldList(*environment, bool) error                          { return errNoBackend }
func heldKeep(context.Context, *environment, string, bool) error { return errNoBackend }
func heldDrop(*environment, string) error                        { return errNoBackend }
