package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
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
	trustBundle    = "coworker/bundle.pem"
	trustAuthority = "coworker/authority.pem"
	trustJava      = "coworker/java.p12"
	trustWget      = "coworker/wgetrc"
)

// secrets are the person's stored credentials.
func (e *environment) secrets() ([]secret.Entry, error) {
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

// trustInside makes an authority for the session, and the files and variables by which programs inside believe it.
func (e *environment) trustInside(p *planned) (*control.CA, []enforce.File, []string, error) {
	authority, err := inject.NewAuthority(rand.Reader, e.now())
	if err != nil {
		return nil, nil, nil, err
	}
	ca, err := authority.Encode()
	if err != nil {
		return nil, nil, nil, err
	}
	bundle, err := trust.Bundle(systemRoots(p.host), authority.CertificatePEM())
	if err != nil {
		return nil, nil, nil, err
	}
	store, password, err := trust.JavaTrustStore(bundle, rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	paths := trust.Paths{
		Bundle: "/etc/" + trustBundle, Authority: "/etc/" + trustAuthority, JavaStore: "/etc/" + trustJava, JavaPassword: password, Wgetrc: "/etc/" + trustWget,
	}
	wgetrc, err := trust.Wgetrc(paths)
	if err != nil {
		return nil, nil, nil, err
	}
	environ, err := trust.Environment(paths)
	if err != nil {
		return nil, nil, nil, err
	}
	files := []enforce.File{
		{Path: trustBundle, Data: bundle, Mode: 0o644}, {Path: trustAuthority, Data: authority.CertificatePEM(), Mode: 0o644},
		{Path: trustJava, Data: store, Mode: 0o644}, {Path: trustWget, Data: wgetrc, Mode: 0o644},
	}
	return &ca, files, environ, nil
}

// systemRoots is the host's bundle: the one that the person's programs are led to, else the first of the usual places.
func systemRoots(host wallspec.Host) []byte {
	places := trust.SystemFiles
	for _, entry := range host.Environ {
		if file, ok := strings.CutPrefix(entry, "SSL_CERT_FILE="); ok && strings.HasPrefix(file, "/") {
			places = append([]string{file}, places...)
		}
	}
	for _, file := range places {
		real, err := filepath.EvalSymlinks(file) // distributions link the usual places to where they keep the bundle
		if err != nil {
			continue
		}
		if data, _, err := host.Files.ReadFile(real, trust.MaxBundle); err == nil {
			return data
		}
	}
	return nil // then nothing but opened hosts is trusted inside
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
