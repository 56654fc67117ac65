package cli

import (
	"github.com/urfave/cli/v2"

	"coworker/netproxy/check"
)

// proxyCommand decides on requests without making any. The proxy that will serve a session decides with the same code.
func proxyCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:  "proxy",
		Usage: "decide on network requests without making any",
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "read requests as JSON lines on stdin, write one decision a line",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "JSON on stdout (it always is)"}},
				Description: "Decides as the egress proxy does: names, addresses, framing, TLS. No request is made and no name looked up;\n" +
					"sessions of this build have no network, whatever a decision says.\n" +
					`example: echo '{"id":"1","allow":["github.com:443"],"request":"CONNECT github.com:443"}' | coworker proxy check` + "\n" +
					"exit codes: 0 every row was decided; 123 a line is no request",
				Action: noArgs(func(*cli.Context) error {
					if err := check.Run(e.in, e.out); err != nil {
						return &usageError{text: err.Error(), hint: "each line is an object with id, allow and request"}
					}
					return nil
				}),
			},
		},
	}
}
