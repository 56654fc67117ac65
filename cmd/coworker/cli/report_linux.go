package cli

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"coworker/runtime/session"
)

// refused takes over what is known about a session that did not start.
func (r *report) refused(err error) {
	var refused *session.RefusedError
	if !errors.As(err, &refused) {
		return
	}
	r.Level = refused.Level.String()
	if refused.Attestation != nil {
		r.proved(*refused.Attestation)
	}
}

func (r *report) proved(a session.Attestation) {
	r.Level = a.Level.String()
	if a.Walls != nil {
		r.Walls = a.Walls
	}
}

// jsonText keeps bytes that JSON cannot carry visible instead of replacing them silently.
func jsonText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func jsonTexts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = jsonText(s)
	}
	return out
}
