package credfile

import (
	"net/url"
	"strings"

	"coworker/platform/secret"
)

// fromURL takes user and password of a URL.
func (r *Result) fromURL(line int, text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil {
		r.skip(line, "", "not a URL") // the error of url.Parse repeats the text
		return nil, false
	}
	if u.User == nil {
		return nil, false
	}
	if u.Host == "" {
		r.skip(line, "", "no host")
		return nil, false
	}
	if !strings.EqualFold(u.Scheme, "https") {
		r.skip(line, u.Host, "not https: the credential goes over the network in the clear")
		return nil, false
	}
	return u, true
}

// basic is the credential of a URL with user information. A user without a password is left out: it may be a token, and a
// user is shown.
func (r *Result) basic(line int, u *url.URL, path string) {
	password, _ := u.User.Password()
	if password == "" {
		r.skip(line, u.Host, "no password")
		return
	}
	r.take(Credential{Host: u.Host, Path: path, User: u.User.Username(), Value: secret.NewValue(password), Scheme: secret.Basic, Line: line})
}

// prefix is a path as secret.Binding has it.
func prefix(path string) string { return strings.TrimRight(path, "/") }

// lines calls f with each line, without its end, and its number from 1.
func lines(data []byte, f func(n int, line string)) {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		f(n, strings.TrimRight(line, "\r\n"))
	}
}
