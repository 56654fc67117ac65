package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Version is set by the linker.
var Version = "dev"

// Streams are the three of the process. A command that runs a program hands them through.
type Streams struct {
	In       *os.File
	Out, Err io.Writer
}

// Run carries out one command line. The error says how it ended; Report turns it into words and an exit code.
func Run(ctx context.Context, args []string, s Streams) error {
	app := newApp(newEnvironment(s))
	return app.RunContext(ctx, nameLast(args))
}

func newApp(e *environment) *cli.App {
	cli.FlagStringer = flagLine
	app := &cli.App{
		Name:      "coworker",
		Usage:     "run commands and agents behind walls that are proved first",
		UsageText: "coworker COMMAND [FLAGS] [ARGUMENTS]",
		Version:   Version,
		Description: "First steps:\n" +
			"   coworker sandbox setup             check this machine, prove the walls\n" +
			"   coworker exec -- ls                run a command; the folder is read-only\n" +
			"   coworker exec -w -- go test ./...  the same, and it may write the folder\n" +
			"   coworker exec -w --allow registries -- npm ci   and it may reach the package registries\n" +
			"   coworker demo                      watch an attack on real walls",
		Commands: []*cli.Command{
			execCommand(e), sandboxCommand(e), auditCommand(e), heldCommand(e), changesCommand(e), cacheCommand(e), secretsCommand(e),
			netCommand(e), proxyCommand(e), demoCommand(e), demoAgentCommand(e), versionCommand(e), completionCommand(e),
		},
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // --env A=1,2 is one value
		Reader:                    e.in,
		Writer:                    e.out,
		ErrWriter:                 e.err,
		ExitErrHandler:            func(*cli.Context, error) {}, // Report ends the process, nobody else
		CommandNotFound:           func(*cli.Context, string) {},
		CustomAppHelpTemplate:     appHelp,
		Action:                    noCommand,
		OnUsageError:              usageProblem,
	}
	for _, c := range app.Commands {
		prepare(c)
	}
	return app
}

// prepare gives a command and its subcommands the manners of the house. The parser's own help command is switched
// off everywhere: with it, `coworker exec -- help` would print help instead of running a program of that name.
func prepare(c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = usageProblem
	if len(c.Subcommands) > 0 {
		c.CustomHelpTemplate = groupHelp
		if c.Action == nil {
			c.Action = noSubcommand
		}
	} else if c.CustomHelpTemplate == "" {
		c.CustomHelpTemplate = leafHelp
	}
	for _, sub := range c.Subcommands {
		prepare(sub)
	}
}

// usageProblem makes the parser's complaints errors of ours. Its texts come from package flag.
func usageProblem(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	hint := fmt.Sprintf("%s --help lists the flags", commandPath(c))
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = fmt.Sprintf("there is no flag %q", dashed(strings.TrimPrefix(name, "-")))
		if near := nearest(strings.TrimLeft(name, "-"), flagNames(c)); near != "" {
			hint = fmt.Sprintf("did you mean %s? %s", dashed(near), hint)
		}
	}
	if strings.HasPrefix(text, "invalid boolean value ") {
		text = text[strings.LastIndex(text, " -")+1:] // the value may be a secret that was typed in the wrong place
		name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), ":")
		text = fmt.Sprintf("%s takes no value", dashed(name))
	}
	return &usageError{text: text, hint: hint}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func commandPath(c *cli.Context) string {
	if c.Command != nil && c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return "coworker"
}

func flagNames(c *cli.Context) []string {
	var out []string
	if c.Command != nil {
		for _, f := range c.Command.Flags {
			out = append(out, f.Names()...)
		}
	}
	return out
}

// later are commands of the contract whose parts are not in this build. They are refused, so that a script learns
// of it at once.
var later = []string{
	"run", "policy", "trust", "sessions", "inbox", "jobs", "memory", "skills", "personas", "connectors", "mcp",
	"models", "serve", "changes", "doctor",
}

func noCommand(c *cli.Context) error {
	name := c.Args().First()
	switch {
	case name == "":
		return &usageError{text: "the chat is not part of this build", hint: "coworker sandbox setup checks this machine, coworker exec -- CMD runs a command, coworker --help lists the rest"}
	case slices.Contains(later, name):
		return notBuilt("the command " + name)
	}
	var names []string
	for _, cmd := range c.App.Commands {
		names = append(names, cmd.Name)
	}
	return unknownWord("command", name, names, "coworker --help lists the commands")
}

func noSubcommand(c *cli.Context) error {
	var names []string
	for _, cmd := range c.Command.Subcommands {
		names = append(names, cmd.Name)
	}
	hint := fmt.Sprintf("%s %s", commandPath(c), strings.Join(names, "|"))
	if c.Args().First() == "" {
		return &usageError{text: fmt.Sprintf("%s needs one more word", commandPath(c)), hint: hint}
	}
	return unknownWord("command", commandPath(c)+" "+c.Args().First(), names, hint)
}

func unknownWord(kind, word string, valid []string, hint string) error {
	last := word[strings.LastIndex(word, " ")+1:]
	if near := nearest(last, valid); near != "" {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	return &usageError{text: fmt.Sprintf("there is no %s %q", kind, word), hint: hint}
}

func notBuilt(what string) error {
	return &usageError{text: what + " is not part of this build", hint: "leave it out; nothing was run"}
}

// noArguments refuses words that a command has no use for: they are a slip, not a wish to be ignored.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return &usageError{text: fmt.Sprintf("%s takes no argument, got %q", commandPath(c), c.Args().First()), hint: commandPath(c) + " --help"}
	}
	return nil
}

// exactArguments returns the arguments of a command that needs n of them.
func exactArguments(c *cli.Context, n int) ([]string, error) {
	if c.Args().Len() != n {
		return nil, &usageError{
			text: fmt.Sprintf("%s needs %d argument(s), got %d", commandPath(c), n, c.Args().Len()),
			hint: fmt.Sprintf("%s %s", commandPath(c), c.Command.ArgsUsage),
		}
	}
	return c.Args().Slice(), nil
}
