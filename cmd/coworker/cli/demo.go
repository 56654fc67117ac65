package cli

import (
	"github.com/urfave/cli/v2"
)

func demoCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "watch a compromised agent attack real walls",
		Description: "A program that plays an agent under somebody else's control runs in a session around a made-up project with\n" +
			"made-up secrets. It tries what such an agent would try; after each the host is looked at. Needs no key, no network.\n\n" +
			"exit codes: 0 all were stopped; 120 walls not proved, or something got out",
		Action: noArgs(func(c *cli.Context) error { return runDemo(c.Context, e) }),
	}
}

// demoAgentCommand is the attacker. It is started inside the wall by demo.
func demoAgentCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name: demoAgent, Hidden: true, Usage: "the attacker of demo; does nothing useful by hand", ArgsUsage: "ROLE TARGETS",
		Action: func(c *cli.Context) error {
			args, err := exactArguments(c, 2)
			if err != nil {
				return err
			}
			return playAgent(e, args[0], args[1])
		},
	}
}

const demoAgent = "demo-agent"
