package credfile

import (
	"strings"

	"coworker/platform/secret"
)

// ParseGit reads a .git-credentials (git-credential-store(1)): one https://USER:PASSWORD@HOST[/PATH] a line.
func ParseGit(data []byte) (Result, error) {
	var out Result
	if err := checkSize(data); err != nil {
		return out, err
	}
	lines(data, func(n int, line string) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			return
		}
		if u, ok := out.fromURL(n, line); ok {
			out.basic(n, u, prefix(u.EscapedPath()))
		}
	})
	return out, nil
}

// ParseGitFill reads what `git credential fill` answers (git-credential(1)): NAME=VALUE lines. A later line beats an
// earlier one, as in git. ok is false if there is no password in it.
func ParseGitFill(data []byte) (c Credential, ok bool) {
	if checkSize(data) != nil {
		return Credential{}, false
	}
	fields := map[string]string{}
	lines(data, func(_ int, line string) {
		if name, value, found := strings.Cut(line, "="); found {
			fields[name] = value
		}
	})
	c = Credential{Host: fields["host"], User: fields["username"], Value: secret.NewValue(fields["password"]), Scheme: secret.Basic}
	if fields["protocol"] != "https" || c.Host == "" || secret.CheckValue(c.Value) != nil || tokenUser(c) {
		return Credential{}, false
	}
	return c, true
}
