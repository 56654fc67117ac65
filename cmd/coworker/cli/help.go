package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// The help texts: what it is, how to call it, an example, the exit codes. Short enough for one screen.
const (
	appHelp = `{{.Name}}: {{.Usage}}

usage: {{.UsageText}}

commands:{{range .VisibleCommands}}
   {{printf "%-12s" .Name}}{{.Usage}}{{end}}

{{.Description}}

coworker COMMAND --help tells more. Text for people goes to stderr, results go to stdout.
`
	groupHelp = `{{.HelpName}}: {{.Usage}}

commands:{{range .VisibleCommands}}
   {{printf "%-12s" .Name}}{{.Usage}}{{end}}
{{if .Description}}
{{.Description}}
{{end}}`
	leafHelp = `{{.HelpName}}: {{.Usage}}

usage: {{.HelpName}}{{if .VisibleFlags}} [FLAGS]{{end}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}
{{if .VisibleFlags}}
flags:{{range .VisibleFlags}}
   {{.}}{{end}}
{{end}}{{if .Description}}
{{.Description}}
{{end}}`
)

const exitCodesOfExec = `exit codes: the command's own; 120 walls not proved; 121 denied by policy; 122 nobody to ask; 123 configuration error;
124 time-out; 125 internal error; 126 and 127 as in shells; 128+n ended by signal n.
--report tells when the command itself returned one of these.`

// flagLine is one flag in a help text: its names, its value, what it does.
func flagLine(f cli.Flag) string {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return f.String()
	}
	value, usage := unquoteUsage(doc.GetUsage())
	var names []string
	for _, name := range f.Names() {
		names = append(names, dashed(name))
	}
	left := strings.Join(names, ", ")
	if doc.TakesValue() {
		left += " " + cmp.Or(value, "VALUE")
	}
	if _, many := f.(*cli.StringSliceFlag); many {
		left += " …"
	}
	return fmt.Sprintf("%-30s%s", left, usage)
}

// unquoteUsage finds the name of the value, which stands in back quotes.
func unquoteUsage(usage string) (value, text string) {
	before, rest, found := strings.Cut(usage, "`")
	value, after, closed := strings.Cut(rest, "`")
	if !found || !closed {
		return "", usage
	}
	return value, before + value + after
}
