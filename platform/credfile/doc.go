// Package credfile reads the files in which other programs keep credentials: npm's .npmrc, pip's pip.conf, .netrc and
// git's credential store.
//
// It is pure: bytes and the environment in, credentials out. cmd/coworker imports it. Files of these kinds are edited by
// hand and by many programs, so what cannot be used is skipped with its line and the reason, and the rest is taken; no
// text of this package holds content of a file but hosts, paths, users and names of variables. Finding and opening files
// belongs to the caller.
package credfile

import (
	"errors"
	"fmt"

	"coworker/platform/redact"
	"coworker/platform/secret"
)

// MaxFile bounds what is read, in bytes.
const MaxFile = 1 << 20

// maxFound bounds credentials and, apart from them, skipped lines of one file.
const maxFound = 256

// Credential is one that a file holds. Its host is as written: the caller decides what is a host name.
type Credential struct {
	Host   string // HOST[:PORT]
	Path   string // prefix without a final slash; empty: all
	User   string // of secret.Basic
	Value  secret.Value
	Scheme secret.Scheme
	Line   int
}

// Skipped is a line that holds a credential which is not taken.
type Skipped struct {
	Line   int
	Host   string // as far as known
	Reason string
}

// Result is what a file holds.
type Result struct {
	Found   []Credential
	Skipped []Skipped
}

func (r *Result) skip(line int, host, reason string) {
	if len(r.Skipped) < maxFound {
		r.Skipped = append(r.Skipped, Skipped{line, host, reason})
	}
}

func (r *Result) take(c Credential) {
	if err := secret.CheckValue(c.Value); err != nil {
		r.skip(c.Line, c.Host, err.Error())
		return
	}
	if tokenUser(c) {
		r.skip(c.Line, c.Host, "the token stands in place of the user, which is shown")
		return
	}
	if len(r.Found) >= maxFound {
		r.skip(c.Line, c.Host, fmt.Sprintf("more than %d credentials", maxFound))
		return
	}
	r.Found = append(r.Found, c)
}

// tokenUser says that the secret of a pair is its user, as in https://TOKEN:x-oauth-basic@github.com.
func tokenUser(c Credential) bool {
	if c.Scheme != secret.Basic {
		return false
	}
	return c.Value.Reveal() == "x-oauth-basic" || redact.New().String(c.User) != c.User
}

func checkSize(data []byte) error {
	if len(data) > MaxFile {
		return fmt.Errorf("larger than %d MiB", MaxFile>>20)
	}
	for _, c := range data {
		if c == 0 {
			return errors.New("not a text file (it holds a NUL byte)")
		}
	}
	return nil
}
