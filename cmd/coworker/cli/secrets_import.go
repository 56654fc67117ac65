package cli

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"coworker/platform/credfile"
	"coworker/platform/secret"
	"coworker/platform/secret/store"
)

func secretsImportCommand(e *environment) *cli.Command {
	sub := func(kind secret.Source, usage, more string) *cli.Command {
		host := "take only the credential of this `HOST`"
		if kind == secret.FromGit {
			host += ", and ask git's credential helpers for it"
		}
		return &cli.Command{
			Name: string(kind), Usage: usage,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be taken"},
				&cli.StringFlag{Name: "host", Usage: host},
				&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
				&cli.BoolFlag{Name: "replace", Usage: "overwrite secrets of the same name"},
			},
			Description: more + "\nexample: coworker secrets import " + string(kind) + " --dry-run\nexit codes: 0; 1 nothing found, a name is taken or the answer was no; 123",
			Action: noArgs(func(c *cli.Context) error {
				return secretsImport(c.Context, e, importing{kind, c.String("host"), c.Bool("dry-run"), c.Bool("yes"), c.Bool("replace")})
			}),
		}
	}
	return &cli.Command{
		Name: "import", Usage: "take over what npm, pip or git have",
		Subcommands: []*cli.Command{
			sub(secret.FromNPM, "from ~/.npmrc and NPM_CONFIG_USERCONFIG", "For GET and HEAD only: a package script must not be able to publish."),
			sub(secret.FromPip, "from pip.conf and ~/.netrc", "For GET and HEAD only: a package script must not be able to publish."),
			sub(secret.FromGit, "from ~/.git-credentials, or for one host from git's helpers", "For all methods: a push is a POST."),
		},
	}
}

// importing is what the flags say.
type importing struct {
	kind              secret.Source
	host              string
	dry, yes, replace bool
}

// offer is one credential that can be taken.
type offer struct {
	entry secret.Entry
	from  string // file and line
}

func secretsImport(ctx context.Context, e *environment, f importing) error {
	if f.host != "" {
		name, port, err := parseSecretHost(f.host)
		if err != nil {
			return &usageError{text: "--host " + err.Error()}
		}
		f.host = (secret.Binding{Host: name, Port: port}).Resource()
	}
	offers, err := e.offers(ctx, f)
	if err != nil {
		return err
	}
	if len(offers) == 0 {
		return &failedError{text: fmt.Sprintf("%s has no credential that can be taken", f.kind), hint: "coworker secrets set NAME --host HOST stores one"}
	}
	if f.dry {
		printOffers(e, offers)
		return nil
	}
	return e.changeSecrets(ctx, "import", func(s *store.Store) ([]secret.Entry, error) {
		var entries []secret.Entry
		for _, o := range offers {
			if err := free(s, o.entry.Name, f.replace); err != nil {
				return nil, err
			}
			entries = append(entries, o.entry)
		}
		if err := e.confirmImport(f, offers); err != nil {
			return nil, err
		}
		if err := s.Put(f.replace, entries...); err != nil {
			return nil, secretProblem(err)
		}
		return entries, e.reportStored(s, entries...)
	})
}

func printOffers(e *environment, offers []offer) {
	t := table{}
	t.add("NAME", "HOST", "PATH", "METHODS", "SENT AS", "FROM")
	for _, o := range offers {
		b := o.entry.Binding
		t.add(o.entry.Name, hostText(b), pathText(b), methodsText(b), sentAs(b), visible(o.from))
	}
	t.write(e.out)
}

// confirmImport shows what will be taken and waits for a yes.
func (e *environment) confirmImport(f importing, offers []offer) error {
	printOffers(e, offers)
	if f.yes {
		return nil
	}
	if !isTerminal(e.in) {
		return &usageError{text: "nobody is there to agree to the import", hint: "--yes takes what is listed, --dry-run only lists it"}
	}
	fmt.Fprintf(e.err, "store %d secret(s)? [y/N] ", len(offers))
	answer, err := bufio.NewReader(e.in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); err != nil || word != "y" && word != "yes" {
		return &failedError{text: "the answer was no", hint: "nothing was stored"}
	}
	return nil
}

// offers collects what can be taken, and says what cannot.
func (e *environment) offers(ctx context.Context, f importing) ([]offer, error) {
	found, err := e.credentialFiles(f.kind)
	if err != nil {
		return nil, err
	}
	if f.kind == secret.FromGit && f.host != "" {
		filled, err := e.gitFill(ctx, f.host)
		if err != nil {
			return nil, err
		}
		found = append(found, filled)
	}
	var out []offer
	for _, file := range found {
		for _, s := range file.result.Skipped {
			if f.host == "" || s.Host == "" || sameHost(s.Host, f.host) {
				e.note("note", fmt.Sprintf("%s is not taken: %s", strings.TrimSpace(placeText(file.name, s.Line)+" "+s.Host), s.Reason), "")
			}
		}
		for _, c := range file.result.Found {
			if o, ok := e.offer(f, file.name, c); ok && !taken(out, o) {
				out = append(out, o)
			}
		}
	}
	nameOffers(f.kind, out)
	return out, nil
}

func placeText(name string, line int) string {
	if line == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(line)
}

// sameHost compares HOST[:PORT] as written with a canonical one.
func sameHost(written, canonical string) bool {
	name, port, err := parseSecretHost(written)
	return err == nil && (secret.Binding{Host: name, Port: port}).Resource() == canonical
}

// offer judges one credential. The entry has no name yet.
func (e *environment) offer(f importing, file string, c credfile.Credential) (offer, bool) {
	from := placeText(file, c.Line)
	if f.host != "" && !sameHost(c.Host, f.host) {
		return offer{}, false
	}
	b := secret.Binding{Path: c.Path, Header: "Authorization", Scheme: c.Scheme, User: c.User}
	if f.kind != secret.FromGit {
		b.Methods = []string{"GET", "HEAD"}
	}
	var err error
	if b.Host, b.Port, err = parseSecretHost(c.Host); err == nil {
		err = b.Check()
	}
	if err != nil {
		e.note("note", fmt.Sprintf("%s is not taken: %v", from, err), "")
		return offer{}, false
	}
	return offer{secret.Entry{Value: c.Value, Binding: b, Source: f.kind, Created: e.now().UTC()}, from}, true
}

// taken says that an earlier credential is for the same place. The programs too use the first.
func taken(list []offer, o offer) bool {
	return slices.ContainsFunc(list, func(earlier offer) bool {
		return earlier.entry.Binding.Resource() == o.entry.Binding.Resource()
	})
}

// nameOffers gives each a name of its own: KIND-HOST, and from the second on with a number. The order is that of the
// places, so that the same files give the same names.
func nameOffers(kind secret.Source, list []offer) {
	slices.SortStableFunc(list, func(a, b offer) int {
		return strings.Compare(a.entry.Binding.Resource(), b.entry.Binding.Resource())
	})
	used := map[string]bool{}
	for i := range list {
		base := fmt.Sprintf("%s-%s", kind, list[i].entry.Binding.Host)
		base = strings.TrimRight(base[:min(len(base), secret.MaxName-4)], ".-_")
		name := base
		for n := 2; used[name]; n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		used[name] = true
		list[i].entry.Name = name
	}
}
