package cli

import (
	"github.com/urfave/cli/v2"

	"coworker/enforce"
)

// learning takes --learn, which means a copy of the workspace to which nothing is applied, and a network about which somebody is
// asked, or everything is refused.
func (f *execFlags) learning(c *cli.Context) error {
	if f.learn = c.Bool("learn"); !f.learn {
		return nil
	}
	switch {
	case c.Bool("live"):
		return &usageError{text: "--learn works on a copy, and --live in the real folder", hint: "leave --live out"}
	case f.readOnly:
		return &usageError{text: "--learn lets the command write a copy, and --ro lets it write nothing", hint: "leave --ro out: the real folder stays as it is"}
	case c.IsSet("apply") && c.String("apply") != applyNever:
		return &usageError{text: "--learn applies nothing, and --apply " + c.String("apply") + " would", hint: "leave --apply out; coworker changes apply does it afterwards"}
	case f.level == enforce.Direct.String():
		return &usageError{text: "--level direct has no walls, so there is nothing to learn from", hint: "leave one of them out"}
	case f.net == string(enforce.NetOpen):
		return &usageError{text: "--net open allows every host, so --learn could not tell which ones are wanted", hint: "leave --net out: you are asked, or it is refused and listed"}
	}
	return nil
}
