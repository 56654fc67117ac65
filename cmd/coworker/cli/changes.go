package cli

import (
	"github.com/urfave/cli/v2"
)

// changesFlags are the flags of the changes commands.
type changesFlags struct {
	session string
	path    string
	take    string
	keep    string
	json    bool
	stat    bool
	yes     bool
}

func changesCommand(e *environment) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}
	yes := &cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask first"}
	only := &cli.StringFlag{Name: "path", Usage: "only this `PATH` and what is below it"}
	keep := &cli.StringFlag{Name: "keep", Usage: "remove what could be undone after this `TIME` (default: 14d)"}
	action := func(f func(*environment, *cli.Context, changesFlags) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			flags, err := changesFlagsOf(c)
			if err != nil {
				return err
			}
			return f(e, c, flags)
		}
	}
	return &cli.Command{
		Name: "changes", Usage: "what staged sessions changed: list, diff, apply, discard, undo",
		Description: "A staged session changes nothing on this machine until its changes are applied. Without SESSION the newest one of the current folder is meant, else the newest.",
		Action:      action(changesList),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list staged sessions, or the changes of one", ArgsUsage: "[SESSION]", Flags: []cli.Flag{asJSON, only, keep},
				Description: "exit codes: 0; 1 no such session", Action: action(changesList),
			},
			{
				Name: "diff", Usage: "show the changes", ArgsUsage: "[SESSION]",
				Flags:       []cli.Flag{asJSON, only, &cli.BoolFlag{Name: "stat", Usage: "only names, sizes and counts of lines"}},
				Description: "exit codes: 0; 1 no such session", Action: action(changesDiff),
			},
			{
				Name: "apply", Usage: "bring the changes into the folder", ArgsUsage: "[SESSION]",
				Flags: []cli.Flag{asJSON, yes, keep, &cli.StringFlag{Name: "take", Usage: "where the folder was edited meanwhile: keep the `host` version, take the `staged` one, or leave both (host, staged, leave)"}},
				Description: "Protected files go to the held files (coworker held list), secret files stay as they are. coworker changes undo takes it back.\n" +
					"exit codes: 0; 1 no such session, or conflicts were left; 122 nobody to ask",
				Action: action(changesApply),
			},
			{
				Name: "discard", Usage: "delete the changes and what could be undone", ArgsUsage: "[SESSION]", Flags: []cli.Flag{yes},
				Description: "exit codes: 0; 1 no such session; 122 nobody to ask", Action: action(changesDiscard),
			},
			{
				Name: "undo", Usage: "take the last apply back", ArgsUsage: "[SESSION]", Flags: []cli.Flag{asJSON},
				Description: "What was edited after the apply stays as it is.\nexit codes: 0; 1 nothing to undo, or something was edited since", Action: action(changesUndo),
			},
		},
	}
}

func changesFlagsOf(c *cli.Context) (changesFlags, error) {
	f := changesFlags{
		path: c.String("path"), take: c.String("take"), keep: c.String("keep"),
		json: c.Bool("json"), stat: c.Bool("stat"), yes: c.Bool("yes"),
	}
	if c.Args().Len() > 1 {
		return f, &usageError{text: commandPath(c) + " takes one session", hint: "coworker changes list shows them"}
	}
	f.session = c.Args().First()
	switch f.take {
	case "", "host", "staged", "leave":
		return f, nil
	}
	return f, &usageError{text: "--take " + f.take + " is not a choice", hint: "--take host, --take staged or --take leave"}
}
