package credential

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// spellings are the forms in which a value could lie somewhere. They are made here, not by the product, whose filter they
// are a check of.
func spellings(value string) []string {
	out := []string{value, url.QueryEscape(value), url.PathEscape(value), hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value)))}
	if quoted, err := json.Marshal(value); err == nil {
		out = append(out, string(quoted[1:len(quoted)-1]))
	}
	for shift := range 3 { // inside base64 of a longer text
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := e.EncodeToString(append(make([]byte, shift), value...))
			out = append(out, whole[(shift*8+5)/6:(len(value)+shift)*8/6])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// secret is a value that was lent, and all that must be found nowhere.
type secret struct {
	value string
	forms []string
}

func newSecret(values ...string) secret {
	s := secret{value: values[0]}
	for _, v := range values {
		s.forms = append(s.forms, spellings(v)...)
	}
	return s
}

// in returns the forms that a text holds.
func (s secret) in(text []byte) []string {
	var out []string
	for _, form := range s.forms {
		if bytes.Contains(text, []byte(form)) {
			out = append(out, form)
		}
	}
	return out
}

// masked are the forms as seeker is told them: no octet of them is what it looks for, so that it does not find itself.
func (s secret) masked() string {
	var list []string
	for _, form := range s.forms {
		b := []byte(form)
		for i := range b {
			b[i] ^= 0x55
		}
		list = append(list, hex.EncodeToString(b))
	}
	return strings.Join(list, "\n")
}
