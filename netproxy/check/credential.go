package check

import (
	"fmt"
	"strings"

	"coworker/netproxy/hostmatch"
)

// credentials judges what a row says about secrets: a placeholder in a header ("placeholder of HOST") and a credential the
// proxy would add ("Authorization for HOST"). Either belongs to one host and goes nowhere else; opened says that the
// request is inside TLS, since a secret is never sent in clear text.
func (d *decider) credentials(h hostmatch.Host, headers []string, opened bool) error {
	for _, l := range headers {
		if _, owner, ok := strings.Cut(l, "placeholder of "); ok {
			if err := belongs("a placeholder", owner, h, opened); err != nil {
				return err
			}
		}
	}
	for _, text := range d.inject {
		field, owner, ok := strings.Cut(text, " for ")
		if !ok {
			return fmt.Errorf("credential %s names no host", hostmatch.Quote(text))
		}
		if err := belongs(field, owner, h, opened); err != nil {
			return err
		}
	}
	return nil
}

func belongs(what, owner string, h hostmatch.Host, opened bool) error {
	o, err := hostmatch.ParseName(strings.TrimSpace(owner))
	switch {
	case err != nil:
		return fmt.Errorf("owner of a credential: %w", err)
	case o != h:
		return fmt.Errorf("%s of %s in a request to %s", what, o, h)
	case !opened:
		return fmt.Errorf("%s of %s in clear text", what, o)
	}
	return nil
}
