package cli

import (
	"github.com/urfave/cli/v2"
)

func heldCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:        "held",
		Usage:       "what sessions held back: list, put back, delete",
		Description: "Held are files that a session made and that other programs on this machine would execute.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list what is held", Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}},
				Description: "exit codes: 0",
				Action:      noArgs(func(c *cli.Context) error { return heldList(e, c.Bool("json")) }),
			},
			{
				Name: "keep", Usage: "put an item back at its place", ArgsUsage: "ID", Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "although something stands there (it is held in turn) or the item changed"}},
				Description: "Look at the file first: coworker held list shows where it lies.\nexit codes: 0; 1 no such item, or something is in the way",
				Action: func(c *cli.Context) error {
					args, err := exactArguments(c, 1)
					if err != nil {
						return err
					}
					return heldKeep(c.Context, e, args[0], c.Bool("force"))
				},
			},
			{
				Name: "drop", Usage: "delete an item for good", ArgsUsage: "ID",
				Description: "exit codes: 0; 1 no such item",
				Action: func(c *cli.Context) error {
					args, err := exactArguments(c, 1)
					if err != nil {
						return err
					}
					return heldDrop(e, args[0])
				},
			},
		},
	}
}
