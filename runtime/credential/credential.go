// Package credential turns stored secrets into what one session needs of them: rules for its proxy, and git settings
// inside. Only credentials whose host and port the session may reach anyway are handed on.
//
// It is pure. cmd and runtime/session may import it. The store (platform/secret/store) and the proxy stay outside: it knows
// neither where secrets come from nor how a field gets into a request.
package credential

import (
	"cmp"
	"slices"
	"strings"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
	"coworker/platform/secret"
)

// HostRules are the credentials that a session's proxy gets, with their values. A secret without a host is left out, and
// one whose host and port the rules do not allow, or allow as raw: bytes that nobody looks into cannot get a field.
//
// They are ordered by host, port, then the longest path first and the narrowest methods first.
func HostRules(entries []secret.Entry, allowed hostmatch.Rules) []control.HostRule {
	var out []control.HostRule
	for _, e := range entries {
		b := e.Binding
		if !reaches(b, allowed) {
			continue
		}
		out = append(out, control.HostRule{
			Host: b.Host, Port: b.Port, Methods: slices.Clone(b.Methods), Path: b.Path,
			Secret: e.Name, Header: b.Header, Value: e.HeaderValue().Reveal(),
		})
	}
	slices.SortFunc(out, func(a, b control.HostRule) int {
		return cmp.Or(
			strings.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port),
			cmp.Compare(len(b.Path), len(a.Path)), strings.Compare(a.Path, b.Path),
			cmp.Compare(breadth(a.Methods), breadth(b.Methods)), strings.Compare(a.Secret, b.Secret),
		)
	})
	return out
}

// breadth orders lists of methods; the empty one means all.
func breadth(methods []string) int {
	if len(methods) == 0 {
		return 1 << 30
	}
	return len(methods)
}

// reaches asks the session's own rules. A port other than 443 is raw unless its TLS is opened, so only on 443 does raw
// mean that the person asked for bytes that nobody looks into.
func reaches(b secret.Binding, allowed hostmatch.Rules) bool {
	if !b.Bound() || b.Check() != nil {
		return false
	}
	h, err := hostmatch.ParseName(b.Host)
	if err != nil || h.Name() != b.Host {
		return false
	}
	d := hostmatch.Match(allowed, h, b.Port)
	return d.Verdict == hostmatch.Allow && (b.Port != 443 || !d.Raw)
}

// Setting is one git setting.
type Setting struct{ Key, Value string }

// InsteadOf maps ssh remotes of hosts that have a credential to https (git-config(1), url.<base>.insteadOf): ssh has no
// place for the proxy to add one, and inside there is no key. Only credentials that git can work with count: a GET and a
// POST to port 443. With a path, only remotes below it are mapped.
//
// The same key stands several times; they add up.
func InsteadOf(entries []secret.Entry, allowed hostmatch.Rules) []Setting {
	var out []Setting
	for _, e := range entries {
		b := e.Binding
		if b.Port != 443 || !strings.EqualFold(b.Header, "Authorization") || !carriesGit(b.Methods) || !reaches(b, allowed) {
			continue
		}
		path := strings.TrimPrefix(b.Path, "/")
		key := "url.https://" + b.Host + "/" + path + ".insteadOf"
		for _, remote := range []string{"git@" + b.Host + ":", "ssh://git@" + b.Host + "/", "ssh://git@" + b.Host + ":22/"} {
			out = append(out, Setting{key, remote + path})
		}
	}
	slices.SortFunc(out, func(a, b Setting) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
	})
	return slices.Compact(out)
}

// carriesGit: a fetch is a GET and a POST, a push too (gitprotocol-http(5)).
func carriesGit(methods []string) bool {
	return len(methods) == 0 || slices.Contains(methods, "GET") && slices.Contains(methods, "POST")
}
