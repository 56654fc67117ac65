package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func completionCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: "example: coworker completion bash > ~/.local/share/bash-completion/completions/coworker\n" +
			"exit codes: 0; 123 unknown shell",
		Action: func(c *cli.Context) error {
			args, err := exactArguments(c, 1)
			if err != nil {
				return err
			}
			script, ok := map[string]func([]word) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[args[0]]
			if !ok {
				return unknownWord("shell", args[0], []string{"bash", "zsh", "fish"}, "bash, zsh and fish have one")
			}
			_, err = fmt.Fprint(e.out, script(words(c.App.Commands, nil)))
			return resultError(err)
		},
	}
}

// word is one command with what may follow it. Scripts are made from the command table and run nothing of ours:
// the parser's own completion is a magic last argument, which a command after -- could carry.
type word struct {
	path  []string // without "coworker"
	usage string
	next  []string // subcommands
	flags []string // with dashes
}

func words(commands []*cli.Command, path []string) []word {
	var out []word
	self := word{path: path}
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		self.next = append(self.next, c.Name)
		below := append(append([]string{}, path...), c.Name)
		if len(c.Subcommands) > 0 {
			out = append(out, words(c.Subcommands, below)...)
			continue
		}
		w := word{path: below, usage: c.Usage}
		for _, f := range c.Flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			for _, name := range f.Names() {
				w.flags = append(w.flags, dashed(name))
			}
		}
		out = append(out, w)
	}
	return append([]word{self}, out...)
}

func bashScript(list []word) string {
	var b strings.Builder
	b.WriteString("# bash completion for coworker\n_coworker() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} line=\"\" i\n" +
		"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase ${COMP_WORDS[i]} in\n" +
		"\t\t--) COMPREPLY=($(compgen -c -f -- \"$cur\")); return ;;\n\t\t-*) ;;\n\t\t*) line+=\" ${COMP_WORDS[i]}\" ;;\n\t\tesac\n\tdone\n\tlocal words=\"\"\n\tcase \"$line\" in\n")
	for i := len(list) - 1; i >= 0; i-- { // longest first
		w := list[i]
		pattern := strings.Join(w.path, " ")
		if pattern != "" {
			pattern = " " + pattern
		}
		star := "*"
		if len(w.next) > 0 {
			star = ""
		}
		fmt.Fprintf(&b, "\t%q%s) words=%q ;;\n", pattern, star, strings.Join(append(append([]string{}, w.next...), w.flags...), " "))
	}
	b.WriteString("\tesac\n\tif [[ $words && ( $cur == -* || $words != *--* ) ]]; then\n\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n" +
		"\telse\n\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n\tfi\n}\ncomplete -F _coworker coworker\n")
	return b.String()
}

func zshScript(list []word) string {
	// zsh runs bash completions through bashcompinit, which is part of it.
	return "#compdef coworker\nautoload -U +X bashcompinit && bashcompinit\n" + bashScript(list)
}

func fishScript(list []word) string {
	var b strings.Builder
	b.WriteString("# fish completion for coworker\n")
	for _, w := range list {
		seen := "not __fish_seen_subcommand_from " + strings.Join(list[0].next, " ")
		if len(w.path) > 0 {
			seen = "__fish_seen_subcommand_from " + strings.Join(w.path, "; and __fish_seen_subcommand_from ")
		}
		if len(w.next) > 0 {
			fmt.Fprintf(&b, "complete -c coworker -f -n '%s' -a '%s'\n", seen, strings.Join(w.next, " "))
		}
		for _, f := range w.flags {
			option := "-l " + strings.TrimPrefix(f, "--")
			if !strings.HasPrefix(f, "--") {
				option = "-s " + strings.TrimPrefix(f, "-")
			}
			fmt.Fprintf(&b, "complete -c coworker -n '%s' %s\n", seen, option)
		}
	}
	return b.String()
}
