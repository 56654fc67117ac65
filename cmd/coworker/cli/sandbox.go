package cli

import "github.com/urfave/cli/v2"

func sandboxCommand(e *environment) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "one JSON document on stdout"}
	yes := &cli.BoolFlag{Name: "yes", Usage: "do what needs root without asking"}
	level := &cli.StringFlag{Name: "level", Usage: "the `LEVEL` to reach: partial, enforced, hardened", Value: "enforced"}
	return &cli.Command{
		Name:        "sandbox",
		Usage:       "check and prove the walls of this machine",
		Description: "Begin with coworker sandbox setup.",
		Subcommands: []*cli.Command{
			{
				Name: "setup", Usage: "check this machine, write the settings, prove the walls", Flags: []cli.Flag{
					asJSON, yes, &cli.BoolFlag{Name: "machine", Usage: "only the step that needs root: install the helper coworker-wallsd"},
				},
				Description: "Safe to repeat: what exists is kept. Without root it names the one command that needs it; as root it says what it will do,\nasks, and installs the helper.\nexamples: coworker sandbox setup, sudo coworker sandbox setup --machine\nexit codes: 0 ready; 120 walls not proved, the fix is named; 123 configuration error",
				Action:      noArgs(func(c *cli.Context) error { return sandboxSetup(c.Context, e, setupFlagsOf(c)) }),
			},
			{
				Name: "remove", Usage: "take the helper off this machine again, without a trace", Flags: []cli.Flag{asJSON, yes},
				Description: "What belongs to a person (settings, the record) stays.\nexample: sudo coworker sandbox remove\nexit codes: 0 removed, or nothing was there; 123 not removed",
				Action:      noArgs(func(c *cli.Context) error { return sandboxRemove(c.Context, e, setupFlagsOf(c)) }),
			},
			{
				Name: "status", Usage: "which walls this machine can have, and the step that adds the rest", Flags: []cli.Flag{asJSON},
				Description: "Nothing is proved here; that is what verify does.\nexample: coworker sandbox status --json\nexit codes: 0; 120 no walls at all here",
				Action:      noArgs(func(c *cli.Context) error { return sandboxStatus(c.Context, e, c.Bool("json")) }),
			},
			{
				Name: "verify", Usage: "attack the walls and show what held", Flags: []cli.Flag{
					asJSON, level, &cli.StringFlag{Name: "workspace", Usage: "prove them around this `DIR` instead of an empty folder"},
					&cli.StringFlag{Name: "net", Usage: "with the network `MODE` of a session: none, allowlist, open", Value: "none"},
					&cli.BoolFlag{Name: "staged", Usage: "of a staged session"},
				},
				Description: "example: coworker sandbox verify --level enforced\nexit codes: 0 the level is reached; 120 it is not",
				Action: noArgs(func(c *cli.Context) error {
					return sandboxVerify(c.Context, e, c.Bool("json"), execFlags{level: c.String("level"), workspace: c.String("workspace"), net: c.String("net"), staged: c.Bool("staged")})
				}),
			},
		},
	}
}

// setupFlags are those of setup and remove.
type setupFlags struct {
	json    bool
	yes     bool // do not ask
	machine bool // only the step that needs root
}

func setupFlagsOf(c *cli.Context) setupFlags {
	return setupFlags{json: c.Bool("json"), yes: c.Bool("yes"), machine: c.Bool("machine")}
}

func noArgs(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return action(c)
	}
}
