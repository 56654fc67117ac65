package cli

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"
)

func versionCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: "exit codes: 0",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			_, err := fmt.Fprintf(e.out, "coworker %s (%s, %s)\n", Version, runtime.Version(), runtime.GOARCH)
			return resultError(err)
		},
	}
}
