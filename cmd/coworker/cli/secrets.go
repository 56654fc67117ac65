package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/paths"
	"coworker/platform/secret"
	"coworker/platform/secret/store"
)

func secretsCommand(e *environment) *cli.Command {
	return &cli.Command{
		Name:  "secrets",
		Usage: "credentials that the proxy adds outside: set, list, remove, import",
		Description: "A secret is sent to one host, over TLS, and only by a session that may reach it. Programs inside never see it.\n" +
			"Values are read from the terminal or stdin, never from an argument, and are never shown again.",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "store a value for a host", ArgsUsage: "NAME", Flags: setFlags(),
				Description: "The value is asked for without echo, or read from stdin; one line break at its end is cut.\n" +
					"examples: coworker secrets set github --host github.com --basic x-access-token\n" +
					"   coworker secrets set api --host api.example.com --path /v1 --methods GET < token.txt\n" +
					"exit codes: 0; 1 the name is taken; 123",
				Action: func(c *cli.Context) error { return secretsSet(c, e) },
			},
			{
				Name: "list", Usage: "list names and places, never values", Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "JSON on stdout"}},
				Description: "exit codes: 0; 123 the store cannot be opened",
				Action:      noArgs(func(c *cli.Context) error { return secretsList(e, c.Bool("json")) }),
			},
			{
				Name: "remove", Usage: "delete secrets for good, all that are named or none", ArgsUsage: "NAME…",
				Description: "exit codes: 0; 1 no such secret; 123 the store cannot be opened",
				Action:      func(c *cli.Context) error { return secretsRemove(c, e) },
			},
			secretsImportCommand(e),
		},
	}
}

// nameLast lets the flags of `secrets set` follow the name, as people write it; the parser wants them before it.
func nameLast(args []string) []string {
	if len(args) < 5 || args[1] != "secrets" || args[2] != "set" || strings.HasPrefix(args[3], "-") {
		return args
	}
	out := append([]string{}, args[:3]...)
	return append(append(out, args[4:]...), args[3])
}

// openSecrets finds the store. It makes coworker's folders, and no store.
func (e *environment) openSecrets() (*store.Store, paths.Dirs, error) {
	d, err := e.dirs()
	if err != nil {
		return nil, d, err
	}
	if err := d.Make(); err != nil {
		return nil, d, err
	}
	return store.New(d.State, store.SystemKeyring(e.getenv)), d, nil
}

func secretsList(e *environment, asJSON bool) error {
	s, _, err := e.openSecrets()
	if err != nil {
		return err
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	if asJSON {
		return e.printJSON(map[string]any{"key": key, "secrets": list})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(e.out, "there are no secrets")
		return resultError(err)
	}
	printSecrets(e, list)
	_, err = fmt.Fprintf(e.out, "\nThe key is in %s.\n", keyText(key))
	return resultError(err)
}

func printSecrets(e *environment, list []secret.Info) {
	t := table{}
	t.add("NAME", "HOST", "PATH", "METHODS", "SENT AS", "SOURCE", "CREATED")
	for _, one := range list {
		t.add(one.Name, hostText(one.Binding), pathText(one.Binding), methodsText(one.Binding), sentAs(one.Binding),
			string(one.Source), one.Created.Local().Format(time.DateOnly))
	}
	t.write(e.out)
}

func hostText(b secret.Binding) string {
	switch {
	case !b.Bound():
		return "none"
	case b.Port == 443:
		return visible(b.Host)
	}
	return visible(b.Host) + ":" + strconv.Itoa(int(b.Port))
}

func pathText(b secret.Binding) string {
	if b.Bound() && b.Path == "" {
		return "all"
	}
	return visible(b.Path)
}

func methodsText(b secret.Binding) string {
	if b.Bound() && len(b.Methods) == 0 {
		return "all"
	}
	return visible(strings.Join(b.Methods, ","))
}

// sentAs is the header field without its value.
func sentAs(b secret.Binding) string {
	text := b.Header + " " + string(b.Scheme)
	if b.Scheme == secret.Basic {
		text += " " + b.User
	}
	return visible(strings.TrimSpace(text))
}

// keyText says where the key is, as the end of a sentence.
func keyText(k store.Key) string {
	if k.Place == store.InKeyring {
		return "the keyring of your session"
	}
	text := "the file " + visible(k.File)
	if k.NoKeyring != "" {
		text += " (when the store was made: " + visible(k.NoKeyring) + ")"
	}
	return text
}

func secretsRemove(c *cli.Context, e *environment) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return &usageError{text: "coworker secrets remove needs a name", hint: "coworker secrets list shows the names"}
	}
	return e.changeSecrets(c.Context, "remove", func(s *store.Store) ([]secret.Entry, error) {
		gone, err := s.For(names...)
		if err == nil {
			err = s.Remove(names...)
		}
		if err != nil {
			return nil, secretProblem(err)
		}
		for _, one := range gone {
			fmt.Fprintf(e.out, "removed %s\n", one.Name)
		}
		return gone, nil
	})
}

// secretProblem turns the answers that a person can act on into a plain no.
func secretProblem(err error) error {
	switch {
	case errors.Is(err, store.ErrNoEntry):
		return &failedError{text: err.Error(), hint: "coworker secrets list shows the names"}
	case errors.Is(err, store.ErrExists):
		return &failedError{text: err.Error(), hint: "--replace overwrites it"}
	}
	return err
}
