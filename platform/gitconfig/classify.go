package gitconfig

import (
	"strconv"
	"strings"
)

// Class is what a key can do.
type Class uint8

// Executes is the zero value: what is not known to be inert executes.
const (
	Executes Class = iota
	Inert
)

func (c Class) String() string {
	if c == Inert {
		return "inert"
	}
	return "executes"
}

// check judges one entry's value; the key itself is already known to be inert.
type check func(e Entry) bool

// Classify judges one entry with its value.
func Classify(e Entry) Class {
	section, sub, key := e.Split()
	if strings.ContainsAny(e.Value, "\x00") || section == "" {
		return Executes
	}
	ok, found := lookup(section, sub, key, e.hasSub())
	if found && ok(e) {
		return Inert
	}
	return Executes
}

func lookup(section, sub, key string, hasSub bool) (check, bool) {
	if section == "color" || section == "advice" {
		// Colours and hints: git parses the value into an attribute or a boolean and does nothing else with it.
		return anything, true
	}
	if section == "alias" {
		// alias.NAME, or since 2.54 [alias "NAME"] command; the latter is left out as unknown.
		return alias, !hasSub
	}
	table := inertPlain
	if hasSub {
		table = inertSub
	}
	ok, found := table[section+"."+key]
	return ok, found
}

func anything(Entry) bool { return true }

// number allows what git_config_int takes.
func number(e Entry) bool {
	v := strings.TrimRight(strings.ToLower(e.Value), "kmg")
	_, err := strconv.ParseInt(v, 10, 64)
	return err == nil
}

func boolean(e Entry) bool {
	if !e.HasValue {
		return true
	}
	switch strings.ToLower(e.Value) {
	case "", "true", "false", "yes", "no", "on", "off":
		return true
	}
	return number(e)
}

func oneOf(words ...string) check {
	return func(e Entry) bool {
		v := strings.ToLower(e.Value)
		for _, w := range words {
			if v == w {
				return true
			}
		}
		return false
	}
}

// choice allows a boolean or one of a few words.
func choice(words ...string) check {
	word := oneOf(words...)
	return func(e Entry) bool { return boolean(e) || word(e) }
}

// word allows a value that no program could read as an option, a path upwards or a shell construct.
func word(e Entry) bool {
	if e.Value == "" || e.Value[0] == '-' {
		return false
	}
	for i := 0; i < len(e.Value); i++ {
		c := e.Value[i]
		if !isKeyChar(c) && c != '_' && c != '.' && c != ',' && c != '+' {
			return false
		}
	}
	return true
}

// text allows one line for people: a name, an address, a description.
func text(e Entry) bool {
	for i := 0; i < len(e.Value); i++ {
		if c := e.Value[i]; c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
			return false
		}
	}
	return e.HasValue
}

// refs allows a ref name or refspec: git never runs one, and a leading dash would be an option in scripts.
func refs(e Entry) bool {
	return e.HasValue && !strings.HasPrefix(e.Value, "-") && !strings.ContainsAny(e.Value, " \t\n\r\\\x7f`$;|&<>\"'")
}

// remoteName allows the name of a configured remote. Git takes what is no configured name as a URL or a path
// (remote.c), so anything that could be one of those is refused.
func remoteName(e Entry) bool {
	if e.Value == "." {
		return true
	}
	v := e.Value
	return refs(e) && v != "" && v[0] != '/' && v[0] != '.' && v[0] != '~' && !strings.Contains(v, ":") && !strings.Contains(v, "..")
}

// remoteURL allows https, ssh and scp-like addresses. Everything else reaches a program or a path: ext::, fd::, NAME::,
// file, a local path, an option in place of a host (CVE-2017-1000117), a line end (CVE-2020-5260).
func remoteURL(e Entry) bool {
	v := e.Value
	for i := 0; i < len(v); i++ {
		if v[i] <= ' ' || v[i] >= 0x7f || v[i] == '\\' {
			return false
		}
	}
	lower := strings.ToLower(v)
	switch {
	case lower != v && !strings.HasPrefix(v, "https://") && !strings.HasPrefix(v, "ssh://") && strings.Contains(lower, "://"):
		return false // git compares the scheme in its own case; an odd one would be another helper
	case strings.HasPrefix(v, "https://"):
		return hostAndPath(v[len("https://"):], true)
	case strings.HasPrefix(v, "ssh://"):
		return hostAndPath(v[len("ssh://"):], true)
	case strings.Contains(v, "://"):
		return false
	}
	colon := strings.IndexByte(v, ':')
	if colon <= 0 || strings.HasPrefix(v[colon:], "::") || strings.IndexByte(v[:colon], '/') >= 0 {
		return false
	}
	return hostAndPath(v[:colon]+"/"+v[colon+1:], false)
}

func hostAndPath(rest string, wantPath bool) bool {
	host, path, found := strings.Cut(rest, "/")
	if user, h, ok := strings.Cut(host, "@"); ok {
		if user == "" || user[0] == '-' {
			return false
		}
		host = h
	}
	if host == "" || host[0] == '-' || strings.ContainsAny(host, "@%$`;|&<>\"'(){}*?!#,") {
		return false
	}
	if wantPath && !found {
		return false
	}
	return !strings.HasPrefix(path, "-")
}
