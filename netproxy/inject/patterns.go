package inject

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// maxPattern bounds the longest text that the filter looks for: each octet as \u00XX.
const maxPattern = 6 * maxValue

// minPart is the length from which a part of a credential (an id, a key) is a secret by itself.
const minPart = 16

// publicNames stand in the place of a user or a password where the other half is the token (GitHub, GitLab, Bitbucket,
// PyPI, Google). Stars in their place would only spoil text.
var publicNames = []string{
	"x-access-token", "x-oauth-basic", "x-token-auth", "oauth2", "oauth2accesstoken", "gitlab-ci-token", "__token__",
	"_json_key", "_json_key_base64", "private-token", "anonymous",
}

// secretPart is what must not be guessed: the value without the name of its scheme (RFC 9110 section 11.4), and of Basic
// the password, or the user where the password is none.
func secretPart(value string) string {
	rest := afterScheme(value)
	user, password, ok := basicParts(value)
	switch {
	case !ok:
		return rest
	case len(password) >= minSecret && !slices.Contains(publicNames, strings.ToLower(password)):
		return password
	case !slices.Contains(publicNames, strings.ToLower(user)):
		return user
	}
	return password
}

func afterScheme(value string) string {
	scheme, rest, ok := strings.Cut(value, " ")
	if !ok || strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return value
	}
	return strings.TrimLeft(rest, " ")
}

func basicParts(value string) (user, password string, ok bool) {
	scheme, rest, found := strings.Cut(value, " ")
	if !found || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.Trim(rest, " "))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(decoded), ":")
}

// patterns are the forms in which a value may come back. Each is at least minSecret long.
func patterns(value string) []string {
	secrets := []string{afterScheme(value), secretPart(value)}
	for _, part := range strings.FieldsFunc(afterScheme(value), func(r rune) bool { return strings.ContainsRune(" \"',;=:", r) }) {
		if len(part) >= minPart {
			secrets = append(secrets, part)
		}
	}
	var out []string
	for _, s := range secrets {
		out = append(out, forms(s)...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(p string) bool { return len(p) < minSecret })
}

func forms(s string) []string {
	query, path := url.QueryEscape(s), url.PathEscape(s)
	quoted := jsonQuoted(s)
	return append(base64Forms(s), s,
		query, lowerEscapes(query), path, lowerEscapes(path),
		quoted, jsonQuotedHTML(s), strings.ReplaceAll(quoted, "/", `\/`), html.EscapeString(s),
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))))
}

// lowerEscapes writes %2F as %2f; both are valid (RFC 3986 section 2.1).
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

// jsonQuoted is the inside of a JSON string, as most encoders write visible ASCII.
func jsonQuoted(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// jsonQuotedHTML is that of encoders which escape <, > and & too (Go, Rails).
func jsonQuotedHTML(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b[1 : len(b)-1])
}

// base64Forms are what the octets of s look like inside base64 of a longer text, which begins 0, 1 or 2 octets before a
// group of three. The characters at the ends hold bits of the neighbours too and are left out.
func base64Forms(s string) []string {
	var out []string
	for shift := range 3 {
		padded := strings.Repeat("\x00", shift) + s
		whole := len(padded) * 8 / 6 // characters whose six bits are all known
		first := (shift*8 + 5) / 6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			out = append(out, encoding.EncodeToString([]byte(padded))[first:whole])
		}
	}
	return out
}
