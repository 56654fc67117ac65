package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"coworker/netproxy/hostmatch"
	"coworker/platform/secret"
	"coworker/platform/secret/store"
)

func setFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "host", Usage: "send it to this `HOST[:PORT]` only (port 443)"},
		&cli.StringFlag{Name: "path", Usage: "and there only below this `PATH`"},
		&cli.StringFlag{Name: "methods", Usage: "and only with these methods (`GET,POST`)"},
		&cli.StringFlag{Name: "header", Usage: "in the header field `NAME`", Value: "Authorization"},
		&cli.BoolFlag{Name: "bearer", Usage: "as \"Bearer VALUE\" (default)"},
		&cli.StringFlag{Name: "basic", Usage: "as the password of `USER`"},
		&cli.BoolFlag{Name: "raw", Usage: "as it is"},
		&cli.BoolFlag{Name: "unbound", Usage: "keep it without a host: nothing is sent anywhere"},
		&cli.BoolFlag{Name: "replace", Usage: "overwrite the secret of that name"},
	}
}

func secretsSet(c *cli.Context, e *environment) error {
	args, err := exactArguments(c, 1)
	if err != nil {
		return err
	}
	name := args[0]
	if !secret.ValidName(name) {
		return &usageError{ // without the word: it may be the value
			text: "that is no name for a secret",
			hint: fmt.Sprintf("up to %d lower-case letters, digits, dots, dashes and underlines; the value is not an argument", secret.MaxName),
		}
	}
	binding, err := bindingOf(c)
	if err != nil {
		return err
	}
	return e.changeSecrets(c.Context, "set", func(s *store.Store) ([]secret.Entry, error) {
		if err := free(s, name, c.Bool("replace")); err != nil {
			return nil, err
		}
		value, err := e.readValue()
		if err != nil {
			return nil, err
		}
		entry := secret.Entry{Name: name, Value: value, Binding: binding, Source: secret.FromSet, Created: e.now().UTC()}
		if err := entry.Check(); err != nil {
			return nil, &usageError{text: err.Error(), hint: "nothing was stored"}
		}
		if err := s.Put(c.Bool("replace"), entry); err != nil {
			return nil, secretProblem(err)
		}
		return []secret.Entry{entry}, e.reportStored(s, entry)
	})
}

// free is asked before the value is, so that nobody types one for nothing. Put asks again.
func free(s *store.Store, name string, replace bool) error {
	list, err := s.List()
	if err != nil || replace {
		return err
	}
	if slices.ContainsFunc(list, func(i secret.Info) bool { return i.Name == name }) {
		return secretProblem(fmt.Errorf("%w: %s", store.ErrExists, name))
	}
	return nil
}

func (e *environment) reportStored(s *store.Store, entries ...secret.Entry) error {
	for _, one := range entries {
		where := "without a host"
		if one.Binding.Bound() {
			where = "for " + visible(one.Binding.Resource())
		}
		fmt.Fprintf(e.out, "stored %s %s\n", one.Name, where)
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "the key is in %s\n", keyText(key))
	return resultError(err)
}

// bindingOf turns the flags into a binding.
func bindingOf(c *cli.Context) (secret.Binding, error) {
	if c.Bool("unbound") {
		for _, name := range []string{"host", "path", "methods", "header", "bearer", "basic", "raw"} {
			if c.IsSet(name) {
				return secret.Binding{}, &usageError{text: fmt.Sprintf("--unbound and --%s exclude each other", name)}
			}
		}
		return secret.Binding{}, nil
	}
	if c.String("host") == "" {
		return secret.Binding{}, &usageError{text: "a secret needs the host that it is for", hint: "--host HOST; --unbound keeps it without one, and then no session sends it anywhere"}
	}
	b := secret.Binding{Path: strings.TrimRight(c.String("path"), "/"), Header: c.String("header")}
	var err error
	if b.Host, b.Port, err = parseSecretHost(c.String("host")); err != nil {
		return b, &usageError{text: "--host " + err.Error(), hint: "one exact host name; a wildcard or an address cannot have a credential"}
	}
	if b.Methods, err = parseMethods(c.String("methods")); err != nil {
		return b, err
	}
	if b.Scheme, b.User, err = schemeOf(c); err != nil {
		return b, err
	}
	if err := b.Check(); err != nil {
		return b, &usageError{text: err.Error(), hint: "nothing was stored"}
	}
	return b, nil
}

// parseSecretHost reads HOST[:PORT] as the proxy does, so that what is stored is what it compares with.
func parseSecretHost(text string) (string, uint16, error) {
	h, port, err := hostmatch.ParseAuthority(text, 443)
	if err != nil {
		return "", 0, err
	}
	if h.Name() == "" {
		return "", 0, fmt.Errorf("%s: an address has no name to check a certificate with", hostmatch.Quote(text))
	}
	return h.Name(), port, nil
}

func parseMethods(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	var out []string
	for _, one := range strings.Split(text, ",") {
		if one = strings.ToUpper(strings.TrimSpace(one)); one == "" {
			return nil, &usageError{text: fmt.Sprintf("--methods %q has an empty one", text)}
		}
		out = append(out, one)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func schemeOf(c *cli.Context) (secret.Scheme, string, error) {
	scheme, user, n := secret.Bearer, "", 0
	if c.Bool("bearer") {
		n++
	}
	if c.IsSet("basic") {
		scheme, user, n = secret.Basic, c.String("basic"), n+1
	}
	if c.Bool("raw") {
		scheme, n = secret.Raw, n+1
	}
	if n > 1 {
		return "", "", &usageError{text: "--bearer, --basic and --raw exclude each other"}
	}
	return scheme, user, nil
}

// readValue takes the value from the terminal without echo, or from stdin.
func (e *environment) readValue() (secret.Value, error) {
	if isTerminal(e.in) {
		return e.askValue()
	}
	if e.in == nil {
		return secret.Value{}, &usageError{text: "there is no stdin to read the value from"}
	}
	data, err := io.ReadAll(io.LimitReader(e.in, secret.MaxValue+3)) // and a line break
	if err != nil {
		return secret.Value{}, fmt.Errorf("read the value from stdin: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	return secret.NewValue(text), nil
}

// askValue reads a line in raw mode: there Ctrl-C is a byte and not a signal that would leave the terminal without echo.
func (e *environment) askValue() (value secret.Value, err error) {
	fd := int(e.in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return value, fmt.Errorf("switch the echo off: %w", err)
	}
	defer func() { err = errors.Join(err, term.Restore(fd, before)) }()
	line, err := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.in, e.err}, "").ReadPassword("value (not shown): ")
	if errors.Is(err, io.EOF) {
		return value, &usageError{text: "no value was given", hint: "nothing was stored"}
	}
	return secret.NewValue(line), err
}
