// Package upstream reads which proxy of a company's network stands between this machine and the rest, from the person's
// environment or from a setting, as the values that the proxy process is given.
//
// It is a pure function of texts; runtime and cmd may import it. What does not belong here: connecting, choosing between
// proxy and direct for one host (netproxy), and automatic configuration files, which are programs of a stranger.
package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
)

const (
	maxValue   = 4096 // bytes of one variable
	maxNoProxy = 256  // entries
)

// FromEnvironment reads https_proxy or, without it, http_proxy, with no_proxy; of the two spellings the lower-case one
// counts first, as in curl(1). It returns nil and no error if no proxy is named. source is the variable that counted.
func FromEnvironment(environ []string) (proxy *control.Upstream, source string, err error) {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = strings.TrimSpace(value)
		}
	}
	names := []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"}
	if env["REQUEST_METHOD"] != "" {
		names = names[:3] // in a CGI program HTTP_PROXY is a header of the client's (CVE-2016-5385)
	}
	for _, name := range names {
		if env[name] == "" {
			continue
		}
		if proxy, err = Parse(env[name]); err != nil {
			return nil, name, fmt.Errorf("%s: %w", name, err)
		}
		direct := env["no_proxy"]
		if direct == "" {
			direct = env["NO_PROXY"]
		}
		list, all, err := noProxy(direct)
		switch {
		case err != nil:
			return nil, name, err
		case all:
			return nil, "", nil
		}
		proxy.NoProxy = list
		return proxy, name, nil
	}
	return nil, "", nil
}

// Parse reads http://[USER[:PASSWORD]@]HOST[:PORT]. Without a scheme it is http and without a port 80, as in curl and Go.
// Errors never quote the text, which may hold a password.
func Parse(text string) (*control.Upstream, error) {
	if len(text) > maxValue {
		return nil, fmt.Errorf("a proxy URL of more than %d bytes", maxValue)
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the proxy is not a valid URL")
	case u.Scheme != "http":
		return nil, fmt.Errorf("a proxy of the kind %s is not supported; only http:// is", hostmatch.Quote(u.Scheme))
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("a proxy URL ends with the port, it has no path")
	}
	host, port, err := hostmatch.ParseAuthority(strings.TrimSuffix(u.Host, ":"), 80)
	var syntax *hostmatch.SyntaxError
	if errors.As(err, &syntax) {
		return nil, fmt.Errorf("the host of the proxy: %s", syntax.Reason)
	}
	proxy := &control.Upstream{URL: "http://" + host.Authority(port)}
	if u.User != nil {
		proxy.User = u.User.Username()
		proxy.Password, _ = u.User.Password()
	}
	if strings.ContainsFunc(proxy.User+proxy.Password, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(proxy.User, ":") {
		// RFC 7617 section 2: a user-id has no colon, neither part a control character.
		return nil, errors.New("the user name or password of the proxy holds characters that Basic authentication has no place for")
	}
	return proxy, nil
}

// noProxy reads NO_PROXY in the common ground of curl, wget, Python and Go: entries divided by commas or spaces; a name
// stands for itself and everything below it, with or without a leading dot or "*."; an address or a network; "*" for all.
// A port after a name is refused, because tools disagree about it. An entry that is not understood is an error: whoever
// wrote it wanted some host to be reached directly.
func noProxy(text string) (list []string, all bool, err error) {
	if len(text) > maxValue*4 {
		return nil, false, fmt.Errorf("no_proxy has more than %d bytes", maxValue*4)
	}
	for _, entry := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
		if entry == "*" {
			return nil, true, nil
		}
		forms, err := direct(entry)
		if err != nil {
			return nil, false, err
		}
		list = append(list, forms...)
		if len(list) > maxNoProxy {
			return nil, false, fmt.Errorf("no_proxy has more than %d entries", maxNoProxy)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), false, nil
}

func direct(entry string) ([]string, error) {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		return []string{prefix.Masked().String()}, nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil && addr.Zone() == "" {
		return []string{addr.Unmap().String()}, nil
	}
	host, err := hostmatch.ParseName(strings.TrimPrefix(strings.TrimPrefix(entry, "*"), "."))
	if err != nil {
		return nil, fmt.Errorf("no_proxy holds %s, which is no name, address or network", hostmatch.Quote(entry))
	}
	return []string{host.Name(), "." + host.Name()}, nil
}
