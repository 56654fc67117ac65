package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"coworker/enforce"
)

// execFlags is what a person asked for with exec.
type execFlags struct {
	workspace, profile, user, level, report string
	write, readOnly, debug, tty, ask        bool
	staged, learn                           bool
	apply                                   string // auto, ask or never; empty without --staged
	net                                     string
	allow                                   []string
	read, writePaths, hide                  []string
	env, envSecret, publish                 []string
	memory, pids, cpu, timeout              string
	command                                 []string
}

func execCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command behind proved walls",
		ArgsUsage: "-- CMD [ARGUMENTS]",
		Description: "Inside there is the workspace (the current folder), the system read-only, a private home and /tmp, no secret,\n" +
			"and no network but for the hosts that --allow names. What a command adds that other programs would execute\n" +
			"(git hooks, editor tasks, …) is held back.\n\n" +
			"examples: coworker exec -w -- npm test\n" +
			"          coworker exec -w --allow registries --allow github.com -- npm ci\n" +
			"          coworker exec -w --tty -- bash\n" +
			"          coworker exec --read ../shared --env-secret NPM_TOKEN --timeout 10m -- make\n\n" + exitCodesOfExec,
		Flags:  append(execFlagTable(), unbuiltFlags()...),
		Action: func(c *cli.Context) error { return runExec(c, e) },
	}
}

func execFlagTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "w", Usage: "the command may write the workspace"},
		&cli.BoolFlag{Name: "ro", Usage: "read-only, also in a trusted folder"},
		&cli.StringFlag{Name: "workspace", Usage: "the `DIR` to work in, instead of the current folder"},
		&cli.StringSliceFlag{Name: "read", Usage: "show this `PATH` too"},
		&cli.StringSliceFlag{Name: "write", Usage: "show this `PATH`, writable; also lifts protection in the workspace"},
		&cli.StringSliceFlag{Name: "hide", Usage: "do not show this `PATH`"},
		&cli.StringSliceFlag{Name: "env", Usage: "pass this variable, or set it: `NAME[=VALUE]`"},
		&cli.StringSliceFlag{Name: "env-secret", Usage: "pass this variable although it is a secret: `NAME`"},
		&cli.StringSliceFlag{Name: "publish", Usage: "a port of the command's, on 127.0.0.1: `[HOST_PORT:]PORT`"},
		&cli.StringFlag{Name: "profile", Usage: "saved flags for a `TOOL`: claude, codex, gemini, go, node, python, rust, or your own"},
		&cli.StringFlag{Name: "user", Usage: "as root: run as this user, `NAME`"},
		&cli.StringFlag{Name: "level", Usage: "the weakest `LEVEL` to start at: partial, enforced (default), hardened"},
		&cli.StringFlag{Name: "timeout", Usage: "end the command after this `TIME` (90s, 10m)"},
		&cli.StringFlag{Name: "memory", Usage: "at most this `SIZE` of memory (2GiB)"},
		&cli.StringFlag{Name: "pids", Usage: "at most this `NUMBER` of processes and threads"},
		&cli.StringFlag{Name: "cpu", Usage: "at most this `NUMBER` of processors (1.5)"},
		&cli.BoolFlag{Name: "tty", Usage: "give the command a terminal"},
		&cli.BoolFlag{Name: "debug", Usage: "allow debuggers inside (recorded)"},
		&cli.BoolFlag{Name: "live", Usage: "work in the real folder (the default)"},
		&cli.BoolFlag{Name: "staged", Usage: "work on a copy: nothing in the real folder changes until it is applied"},
		&cli.StringFlag{Name: "apply", Usage: "with --staged, `WHEN` to apply at the end: ask (default), auto (if the command succeeds), never"},
		&cli.BoolFlag{Name: "learn", Usage: "work on a copy, ask about every host or refuse it, and propose a profile at the end"},
		&cli.StringSliceFlag{Name: "allow", Usage: "a `RULE` about what it may reach: HOST[:PORT][=CIDR][+raw], *.HOST, or registries"},
		&cli.StringFlag{Name: "net", Usage: "the network `MODE`: none (default), allowlist (what --allow names), open (all public hosts)"},
		&cli.BoolFlag{Name: "ask", Usage: "ask on the terminal about a host that no rule allows"},
		&cli.StringFlag{Name: "report", Usage: "write what happened to this `FILE`, as JSON"},
	}
}

// unbuiltFlags are in the contract and refused by this build. They are not in the help.
func unbuiltFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "socket", Hidden: true},
	}
}

// refuseUnbuilt names the first flag whose part is missing. Accepting one would let a person believe in it.
func refuseUnbuilt(c *cli.Context) error {
	for _, f := range unbuiltFlags() {
		if name := f.Names()[0]; c.IsSet(name) {
			return notBuilt("--" + name)
		}
	}
	return nil
}

func parseExec(c *cli.Context) (execFlags, error) {
	f := execFlags{
		workspace: c.String("workspace"), profile: c.String("profile"), user: c.String("user"), level: c.String("level"), report: c.String("report"),
		write: c.Bool("w"), readOnly: c.Bool("ro"), debug: c.Bool("debug"), tty: c.Bool("tty"),
		ask: c.Bool("ask"), net: c.String("net"), allow: c.StringSlice("allow"),
		read: c.StringSlice("read"), writePaths: c.StringSlice("write"), hide: c.StringSlice("hide"),
		env: c.StringSlice("env"), envSecret: c.StringSlice("env-secret"), publish: c.StringSlice("publish"),
		memory: c.String("memory"), pids: c.String("pids"), cpu: c.String("cpu"), timeout: c.String("timeout"),
		command: c.Args().Slice(),
	}
	if err := refuseUnbuilt(c); err != nil {
		return f, err
	}
	if err := refuseEmpty(c); err != nil {
		return f, err
	}
	if err := f.learning(c); err != nil {
		return f, err
	}
	if err := f.stage(c); err != nil {
		return f, err
	}
	if len(f.command) == 0 || f.command[0] == "" {
		return f, &usageError{text: "exec needs a command", hint: "coworker exec -- ls"}
	}
	for _, word := range f.command {
		if strings.ContainsRune(word, 0) {
			return f, &usageError{text: "the command holds a NUL byte"}
		}
	}
	return f, nil
}

// stage takes the flags of a staged session.
func (f *execFlags) stage(c *cli.Context) error {
	f.staged, f.apply = c.Bool("staged") || f.learn, c.String("apply")
	switch {
	case f.staged && c.Bool("live"):
		return &usageError{text: "--staged and --live contradict each other", hint: "give one of them"}
	case f.staged && f.level == enforce.Direct.String():
		return &usageError{text: "--level direct has no walls, so nothing can be staged", hint: "leave one of them out"}
	case !f.staged && c.IsSet("apply"):
		return &usageError{text: "--apply is about a staged session", hint: "add --staged"}
	case f.learn:
		f.apply = applyNever
	case f.staged && f.apply == "":
		f.apply = applyAsk
	case f.staged && f.apply != applyAsk && f.apply != applyAuto && f.apply != applyNever:
		return &usageError{text: fmt.Sprintf("--apply %q: want auto, ask or never", f.apply), hint: "auto applies when the command succeeds, never keeps the changes for `coworker changes`"}
	}
	return nil
}

// What to do with staged changes at the end.
const (
	applyAsk   = "ask"
	applyAuto  = "auto"
	applyNever = "never"
)

// refuseEmpty refuses --flag "": usually a variable of a script that is not set, and never what was meant.
func refuseEmpty(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !c.IsSet(name) {
			continue
		}
		_, text := f.(*cli.StringFlag)
		_, list := f.(*cli.StringSliceFlag)
		if text && c.String(name) == "" || list && hasEmpty(c.StringSlice(name)) {
			return &usageError{text: "--" + name + " is empty", hint: "give it a value, or leave it out"}
		}
	}
	return nil
}

func hasEmpty(list []string) bool {
	for _, v := range list {
		if v == "" {
			return true
		}
	}
	return false
}

// runExec carries out exec and writes the report, whatever happened.
func runExec(c *cli.Context, e *environment) error {
	f, err := parseExec(c)
	if f.report == "" {
		if err == nil {
			err = execute(c.Context, e, f, newReport())
		}
		return err
	}
	d, destinationErr := e.openDestination(f.report)
	if destinationErr != nil {
		return errors.Join(err, &usageError{text: destinationErr.Error(), hint: "nothing was run; --report needs a file in a folder that is there"})
	}
	r := newReport()
	if err == nil {
		err = execute(c.Context, e, f, r)
	}
	r.ExitCode = ExitCode(err)
	return joinReport(err, r.write(d))
}
