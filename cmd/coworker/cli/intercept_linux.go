package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/inject"
	"coworker/netproxy/inject/trust"
	"coworker/platform/secret"
	"coworker/runtime/credential"
	"coworker/runtime/wallspec"
)

// Where programs inside find what makes them believe the session's certificates, below /etc.
const (
	trustBundle    = "ssl/session/bundle.pem"
	trustAuthority = "ssl/session/authority.pem"
	trustJava      = "ssl/session/java.p12"
	trustWget      = "ssl/session/wgetrc"
)

// secrets are the person's stored credentials. Where there is no store, no folder is made for one: whether coworker's own
// folders are there already decides about some workspaces.
func (e *environment) secrets() ([]secret.Entry, error) {
	d, err := e.dirs()
	if err != nil {
		return nil, err
	}
	_, noHeader := os.Lstat(filepath.Join(d.State, "secrets.json"))
	_, noStore := os.Lstat(filepath.Join(d.State, "secrets.age"))
	if errors.Is(noHeader, fs.ErrNotExist) && errors.Is(noStore, fs.ErrNotExist) {
		return nil, nil
	}
	s, _, err := e.openSecrets()
	if err != nil {
		return nil, err
	}
	return s.Entries()
}

// hostRules are the hosts whose TLS the session's proxy opens: those with a credential that the session may reach, and those
// of the settings.
func hostRules(p *planned, secrets []secret.Entry, rules hostmatch.Rules) ([]control.HostRule, error) {
	list := credential.HostRules(secrets, rules)
	for _, text := range p.settings.Net.Requests {
		rule, err := parseRequestRule(string(text))
		if err != nil {
			return nil, &usageError{text: fmt.Sprintf("net.requests in %s: %q: %v", p.settings.Source, string(text), err), hint: `the form is "GET,HEAD api.example.com/path", with * for every method`}
		}
		list = append(list, rule)
	}
	if _, err := inject.ParseRules(list); err != nil {
		return nil, &usageError{text: err.Error(), hint: "coworker secrets list shows what credentials are bound to"}
	}
	return list, nil
}

// parseRequestRule reads "METHODS HOST[:PORT][/PATH]".
func parseRequestRule(text string) (control.HostRule, error) {
	methods, place, ok := strings.Cut(text, " ")
	if !ok {
		return control.HostRule{}, errors.New("a method and a host are parted by a space")
	}
	authority, path, _ := strings.Cut(strings.TrimSpace(place), "/")
	host, port, err := hostmatch.ParseAuthority(authority, 443)
	if err != nil {
		return control.HostRule{}, err
	}
	rule := control.HostRule{Host: host.String(), Port: port}
	if path != "" {
		rule.Path = "/" + path
	}
	if methods != "*" {
		rule.Methods = strings.Split(methods, ",")
	}
	return rule, nil
}

// believed is what programs inside have to trust beside the public roots.
type believed struct {
	system []byte // the host's bundle
	own    []byte // certificates of a company that the person's variables name
}

// trustVariables are those by which the person's programs are led to certificates: a company that looks into TLS, or has
// registries of its own, sets one of them. Inside they would name files that are not there.
var trustVariables = []string{
	"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
	"NIX_SSL_CERT_FILE", "AWS_CA_BUNDLE", "DENO_CERT", "NPM_CONFIG_CAFILE", "npm_config_cafile",
}

// certificates gathers what the host's programs trust, and nothing but certificates: it is shown inside. A file that cannot
// be read leaves its certificates out.
func certificates(host wallspec.Host) believed {
	var b believed
	seen := map[string]bool{}
	read := func(file string) []byte {
		real, err := filepath.EvalSymlinks(file) // distributions link the usual places to where they keep the bundle
		if err != nil || seen[real] {
			return nil
		}
		seen[real] = true
		data, _, err := host.Files.ReadFile(real, trust.MaxBundle)
		if err != nil {
			return nil
		}
		only, err := trust.Certificates(data)
		if err != nil {
			return nil
		}
		return only
	}
	for _, file := range trust.SystemFiles {
		if data := read(file); data != nil && b.system == nil {
			b.system = data
		}
	}
	for _, entry := range host.Environ {
		name, file, _ := strings.Cut(entry, "=")
		if slices.Contains(trustVariables, name) && filepath.IsAbs(file) {
			b.own = append(b.own, read(file)...)
		}
	}
	return b
}

// trustInside makes an authority for the session if hosts are opened, and the files and variables by which programs inside
// believe it and the company's certificates. Without either there are none.
func (e *environment) trustInside(p *planned, opens bool) (ca *control.CA, files []enforce.File, environ []string, err error) {
	b := certificates(p.host)
	added := b.own
	if opens {
		authority, err := inject.NewAuthority(rand.Reader, e.now())
		if err != nil {
			return nil, nil, nil, err
		}
		encoded, err := authority.Encode()
		if err != nil {
			return nil, nil, nil, err
		}
		encoded.Roots = slices.Concat(b.system, b.own)
		ca, added = &encoded, slices.Concat(b.own, authority.CertificatePEM())
	}
	if len(added) == 0 {
		return ca, nil, nil, nil
	}
	files, environ, err = trustFiles(b.system, added)
	return ca, files, environ, err
}

func trustFiles(system, added []byte) ([]enforce.File, []string, error) {
	bundle, err := trust.Bundle(system, added)
	if err != nil {
		return nil, nil, err
	}
	store, password, err := trust.JavaTrustStore(bundle, rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	paths := trust.Paths{
		Bundle: "/etc/" + trustBundle, Authority: "/etc/" + trustAuthority, JavaStore: "/etc/" + trustJava, JavaPassword: password, Wgetrc: "/etc/" + trustWget,
	}
	wgetrc, err := trust.Wgetrc(paths)
	if err != nil {
		return nil, nil, err
	}
	environ, err := trust.Environment(paths)
	if err != nil {
		return nil, nil, err
	}
	return []enforce.File{
		{Path: trustBundle, Data: bundle, Mode: 0o644}, {Path: trustAuthority, Data: added, Mode: 0o644},
		{Path: trustJava, Data: store, Mode: 0o644}, {Path: trustWget, Data: wgetrc, Mode: 0o644},
	}, environ, nil
}

// gitSettings are lines for the private .gitconfig.
func gitSettings(entries []secret.Entry, rules hostmatch.Rules) []byte {
	var b strings.Builder
	for _, s := range credential.InsteadOf(entries, rules) {
		rest, ok := strings.CutPrefix(s.Key, "url.")
		base, ok2 := strings.CutSuffix(rest, ".insteadOf")
		if ok && ok2 {
			fmt.Fprintf(&b, "[url %s]\n\tinsteadOf = %s\n", wallspec.GitQuote(base), wallspec.GitQuote(s.Value))
		}
	}
	return []byte(b.String())
}
