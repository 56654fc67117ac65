package credfile

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"coworker/platform/secret"
)

// registry collects the keys of one registry.
type registry struct {
	token, auth, user, password string
	line                        int
}

// ParseNPM reads an .npmrc (npm's documentation "npmrc", npm 7 and later: credentials stand under //HOST/PATH/:KEY).
// ${NAME} is replaced from the environment as npm does; a credential with a variable that is not set is skipped.
func ParseNPM(data []byte, getenv func(string) (string, bool)) (Result, error) {
	var out Result
	if err := checkSize(data); err != nil {
		return out, err
	}
	found := map[string]*registry{}
	var order []string
	lines(data, func(n int, line string) {
		place, key, value := out.npmLine(n, line)
		if place == "" {
			return
		}
		value, missing := expand(value, getenv)
		if missing != "" {
			out.skip(n, hostOf(place), fmt.Sprintf("the variable %s is not set", missing))
			return
		}
		if found[place] == nil {
			found[place] = &registry{}
			order = append(order, place)
		}
		found[place].set(key, value, n)
	})
	for _, place := range order {
		out.npmRegistry(place, found[place])
	}
	return out, nil
}

var npmKeys = []string{"_authToken", "_auth", "username", "_password"}

// npmLine splits "//HOST/PATH/:KEY = VALUE". place is "HOST/PATH/"; it is empty for lines that are none of those.
func (r *Result) npmLine(n int, line string) (place, key, value string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == ';' || line[0] == '#' || line[0] == '[' {
		return "", "", ""
	}
	name, value, _ := strings.Cut(line, "=")
	name, value = unquote(strings.TrimSpace(name)), unquote(strings.TrimSpace(value))
	colon := strings.LastIndexByte(name, ':')
	key = name[colon+1:]
	if !slices.Contains(npmKeys, key) {
		return "", "", ""
	}
	place, ok := strings.CutPrefix(name[:max(colon, 0)], "//")
	if !ok || hostOf(place) == "" {
		if key != "username" {
			r.skip(n, "", key+" without a registry, which npm no longer reads")
		}
		return "", "", ""
	}
	return place, key, value
}

func hostOf(place string) string {
	host, _, _ := strings.Cut(place, "/")
	return host
}

func (g *registry) set(key, value string, line int) {
	switch key {
	case "_authToken":
		g.token = value
	case "_auth":
		g.auth = value
	case "username":
		g.user = value
	case "_password":
		g.password = value
	}
	if key != "username" || g.line == 0 {
		g.line = line
	}
}

// npmRegistry prefers what npm prefers: the token, then user and password, then the pair (npm-registry-fetch, auth.js).
func (r *Result) npmRegistry(place string, g *registry) {
	host, path, _ := strings.Cut(place, "/")
	c := Credential{Host: host, Path: prefix("/" + path), Line: g.line}
	switch {
	case g.token != "":
		c.Value, c.Scheme = secret.NewValue(g.token), secret.Bearer
	case g.user != "" && g.password != "":
		password, err := base64.StdEncoding.DecodeString(g.password)
		if err != nil {
			r.skip(g.line, host, "_password is not base64")
			return
		}
		c.User, c.Value, c.Scheme = g.user, secret.NewValue(string(password)), secret.Basic
	case g.auth != "":
		pair, err := base64.StdEncoding.DecodeString(g.auth)
		user, password, ok := strings.Cut(string(pair), ":")
		if err != nil || !ok {
			r.skip(g.line, host, "_auth is not USER:PASSWORD in base64")
			return
		}
		c.User, c.Value, c.Scheme = user, secret.NewValue(password), secret.Basic
	case g.password != "":
		r.skip(g.line, host, "_password without username")
		return
	default:
		return
	}
	r.take(c)
}

// variable is npm's pattern (@npmcli/config, env-replace.js): a backslash before it keeps it, ? makes it optional.
var variable = regexp.MustCompile(`(\\*)\$\{([^${}]+)\}`)

// expand replaces variables; missing names the first one that is not set.
func expand(value string, getenv func(string) (string, bool)) (out, missing string) {
	out = variable.ReplaceAllStringFunc(value, func(whole string) string {
		m := variable.FindStringSubmatch(whole)
		if len(m[1])%2 == 1 {
			return whole[(len(m[1])+1)/2:]
		}
		name, optional := strings.CutSuffix(m[2], "?")
		text, ok := getenv(name)
		if !ok && !optional && missing == "" {
			missing = visibleName(name)
		}
		return m[1][:len(m[1])/2] + text
	})
	return out, missing
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// visibleName shows a name only if it is one.
func visibleName(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return "that it names"
}

// unquote takes one pair of quotes off, as the ini format of npm does.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
