//go:build !linux

package cli

import "github.com/urfave/cli/v2"

func changesList(*environment, *cli.Context, changesFlags) error    { return errNoBackend }
func changesDiff(*environment, *cli.Context, changesFlags) error    { return errNoBackend }
func changesApply(*environment, *cli.Context, changesFlags) error   { return errNoBackend }
func changesDiscard(*environment, *cli.Context, changesFlags) error { return errNoBackend }
func changesUndo(*environment, *cli.Context, changesFlags) error    { return errNoBackend }
