package registries

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"coworker/netproxy/hostmatch"
)

const maxURL = 2048

// location is where a registry URL leads.
type location struct {
	rule       string // empty for a registry on this file system
	credential bool   // the URL held user information
	hint       string // what the rule alone may not be enough for
}

// ports of the schemes that package managers speak.
var ports = map[string]uint16{"https": 443, "http": 80, "ssh": 22}

// locate makes the rule for a registry URL. Errors never quote the URL: it may hold a password.
func locate(raw string) (location, error) {
	raw = strings.TrimSpace(raw)
	if len(raw) > maxURL {
		return location{}, fmt.Errorf("a registry URL of more than %d bytes", maxURL)
	}
	for _, prefix := range []string{"sparse+", "registry+", "git+"} {
		raw = strings.TrimPrefix(raw, prefix)
	}
	if raw == "" || strings.HasPrefix(raw, "/") || strings.HasPrefix(raw, ".") || strings.HasPrefix(raw, "~") {
		return location{}, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, errors.New("a registry that is not a valid URL")
	}
	port, ok := ports[strings.ToLower(u.Scheme)]
	switch {
	case strings.EqualFold(u.Scheme, "file"):
		return location{}, nil
	case !ok:
		return location{}, errors.New("a registry URL that is neither https nor http")
	case u.Host == "":
		return location{}, errors.New("a registry URL without a host")
	}
	at := location{credential: u.User != nil}
	host, port, err := authority(u.Host, port)
	if err != nil {
		return location{}, err
	}
	at.rule = host.Authority(port)
	if port == 443 {
		at.rule = host.Bracketed()
	}
	if err := refused(host, port, at.rule); err != nil {
		return location{}, err
	}
	if internal(host) {
		at.hint = fmt.Sprintf("if %s has a private address, name its network too: --allow %s=CIDR", host, at.rule)
	}
	return at, nil
}

// authority reads host and port of a URL in the canonical form of rules.
func authority(text string, port uint16) (hostmatch.Host, uint16, error) {
	host, port, err := hostmatch.ParseAuthority(strings.TrimSuffix(text, ":"), port)
	var syntax *hostmatch.SyntaxError
	if errors.As(err, &syntax) {
		return host, port, fmt.Errorf("a registry host that no rule can name: %s", syntax.Reason)
	}
	return host, port, err
}

// refused says why the rule would not be accepted, with the way that there is instead.
func refused(host hostmatch.Host, port uint16, rule string) error {
	addr, literal := host.Addr()
	name := host.Name()
	if literal && (addr.IsLoopback() || addr.IsUnspecified()) || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return fmt.Errorf("the registry is on this machine (port %d); inside it is reached as %s:%d, with --allow %s:%d",
			port, hostmatch.HostService, port, hostmatch.HostService, port)
	}
	if name == hostmatch.HostService {
		return fmt.Errorf("%s is a service of this machine; allow it with --allow %s:%d", name, name, port)
	}
	_, err := hostmatch.ParseAllow(rule)
	var syntax *hostmatch.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("no rule opens %s: %s", host, syntax.Reason)
	}
	return err
}

// internal guesses that a name lives on a private network, which a rule must name (DESIGN.md section 7): single labels and
// the top labels that RFC 6762 appendix G and RFC 8375 list for private use. A literal is its own permission.
func internal(host hostmatch.Host) bool {
	name := host.Name()
	if name == "" {
		return false
	}
	top := name[strings.LastIndexByte(name, '.')+1:]
	switch top {
	case "intranet", "internal", "private", "corp", "home", "lan", "local":
		return true
	}
	return top == name || strings.HasSuffix(name, ".home.arpa")
}
