package redact

import "strings"

// sensitive are parts of names whose value is a secret, in the form that
// fold gives them.
var sensitive = []string{
	"password", "passwd", "passphrase", "passcode", "pwd", "secret", "token",
	"apikey", "accesskey", "secretkey", "privatekey", "signingkey", "encryptionkey", "masterkey", "accountkey",
	"sharedaccess", "authkey", "sshkey", "deploykey", "subscriptionkey", "functionskey",
	"credential", "authorization", "cookie", "bearer", "jwt", "connectionstring", "webhookurl",
	"sessionid", "sessionkey", "clientassertion", "refreshtoken", "codeverifier", "xauth",
}

// whole are names that mean a secret only on their own.
var whole = []string{"auth", "pass", "pat", "otp", "pin", "sid", "dsn", "sig", "signature", "mfa", "totp", "pw", "authtoken", "creds"}

// counts are names that hold a sensitive part and are numbers or settings.
var counts = []string{
	"maxtoken", "mintoken", "numtoken", "totaltoken", "prompttoken", "completiontoken", "inputtoken", "outputtoken",
	"cachetoken", "cachedtoken", "reasoningtoken", "tokenin", "tokenout", "tokencache", "tokensin", "tokensout", "tokenscache",
	"tokencount", "tokenlimit", "tokenbudget", "tokenusage", "tokensused", "tokensper", "tokentype", "tokenizer",
	"tokenurl", "tokenendpoint", "authorizationurl", "authorizationendpoint", "secretname", "passwordfile", "tokenfile",
	"credentialhelper", "cookiejar", "cookieconsent", "tokenpersecond", "maxoutputtoken",
}

// maxKey bounds how much of a name is looked at.
const maxKey = 128

// Key reports whether the value under this name is a secret whatever it looks
// like.
func Key(name string) bool {
	folded := fold(name)
	if folded == "" || name == "PWD" || name == "OLDPWD" {
		return false // the shell's working directory, but db_pwd is a password
	}
	for _, p := range sensitive {
		if strings.Contains(folded, p) {
			return !counting(folded)
		}
	}
	for _, w := range whole {
		if folded == w || hasLastWord(name, w) {
			return true
		}
	}
	return false
}

func counting(folded string) bool {
	for _, c := range counts {
		if strings.Contains(folded, c) {
			return true
		}
	}
	return false
}

// fold drops case and everything but letters and digits: API-Key, apiKey and
// api_key are one name.
func fold(name string) string {
	if len(name) > maxKey {
		name = name[len(name)-maxKey:]
	}
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case isUpper(c):
			b = append(b, c|0x20)
		case isLower(c), isDigit(c):
			b = append(b, c)
		}
	}
	return string(b)
}

// hasLastWord reports whether name ends in the word w after a separator, as in
// DB_PASS or proxy-auth.
func hasLastWord(name, w string) bool {
	cut := len(name) - len(w)
	return cut > 0 && strings.EqualFold(name[cut:], w) && strings.IndexByte("_-. ", name[cut-1]) >= 0
}

// header reports whether the value of this name runs to the end of the line:
// it has spaces and separators of its own.
func header(name string) bool {
	f := fold(name)
	return strings.Contains(f, "authorization") || strings.Contains(f, "cookie")
}

// findAssignments finds `name=value`, `name: value`, `"name": "value"` and
// `name => value` in text of any kind.
func findAssignments(s string, spans []span) []span {
	for i := 0; i < len(s); i++ {
		if s[i] != '=' && s[i] != ':' && !strings.HasPrefix(s[i:], "%3") {
			continue
		}
		name := nameBefore(s, i)
		if name == "" || !Key(name) {
			continue
		}
		if sp, ok := valueAfter(s, i, name); ok {
			spans = append(spans, sp)
			i = sp.end - 1
		}
	}
	return spans
}

// nameBefore returns the name that ends at s[i], quotes and spaces skipped.
func nameBefore(s string, i int) string {
	end := i
	for n := 0; n < 8 && end > 0 && strings.IndexByte(" \t\"'`\\]", s[end-1]) >= 0; n++ {
		end--
	}
	start := end
	for start > 0 && end-start < maxKey && (isWord(s[start-1]) || s[start-1] == '.') {
		start--
	}
	return s[start:end]
}

// valueAfter returns the value behind the separator at s[i].
func valueAfter(s string, i int, name string) (span, bool) {
	i++
	if strings.HasPrefix(s[i:], "3D") || strings.HasPrefix(s[i:], "3d") || strings.HasPrefix(s[i:], "3A") || strings.HasPrefix(s[i:], "3a") {
		i += 2
	}
	if start, end, ok := block(s, i); ok {
		return span{start, end, labelOf(strings.ToLower(clip(name)))}, !isMarker(s[start:end])
	}
	for i < len(s) && (s[i] == '=' || s[i] == ':' || s[i] == '>' || s[i] == ' ' || s[i] == '\t') {
		i++
	}
	start, end := value(s, i)
	if header(name) && !quoted(s, start) {
		end = start
		for end < len(s) && s[end] != '\n' && s[end] != '\r' && s[end] != '"' && s[end] != '\'' {
			end++
		}
	}
	if start == end || isMarker(s[start:end]) || isLiteral(s[start:end]) {
		return span{}, false
	}
	return span{start, end, labelOf(strings.ToLower(clip(name)))}, true
}

// block returns the text of a YAML block scalar (`key: |`) that is announced at
// s[i]: the indented lines that follow.
func block(s string, i int) (start, end int, ok bool) {
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if i >= len(s) || s[i] != '|' && s[i] != '>' {
		return 0, 0, false
	}
	for n := 0; n < 3 && i < len(s) && s[i] != '\n'; n++ {
		i++
	}
	if i >= len(s) || s[i] != '\n' {
		return 0, 0, false
	}
	for start = i; start < len(s) && isSpace(s[start]); {
		start++
	}
	if start == len(s) || s[start-1] == '\n' {
		return 0, 0, false // no indented line follows
	}
	for end = start; end < len(s); end++ {
		if s[end] == '\n' && (end+1 == len(s) || !isSpace(s[end+1])) {
			break
		}
	}
	return start, end, true
}

// clip shortens a name for a marker.
func clip(name string) string {
	if len(name) > 24 {
		return name[len(name)-24:]
	}
	return name
}

// isLiteral tells words that say that there is no value, alone or before the
// next member of an object.
func isLiteral(v string) bool {
	for _, word := range []string{"null", "nil", "None", "true", "false", "undefined"} {
		rest, ok := strings.CutPrefix(v, word)
		if ok && (rest == "" || strings.Trim(rest, "}])") == "" || rest == ",") {
			return true
		}
	}
	return false
}

// quoted reports whether the value at start stands in quotes.
func quoted(s string, start int) bool {
	return start > 0 && strings.IndexByte("\"'`", s[start-1]) >= 0
}

// value returns the bounds of the value at s[i]: inside quotes if it has any
// (escaped quotes of JSON inside JSON too), else up to a space or separator.
func value(s string, i int) (start, end int) {
	slashes := 0
	for i+slashes < len(s) && slashes < 8 && s[i+slashes] == '\\' {
		slashes++
	}
	if q := i + slashes; q < len(s) && strings.IndexByte("\"'`", s[q]) >= 0 {
		start = q + 1
		return start, closing(s, start, s[q], slashes)
	}
	end = i
	for end < len(s) && !isSpace(s[end]) && strings.IndexByte("\"'`&;|<>", s[end]) < 0 {
		end++
	}
	return i, end
}

// closing returns where the string that was opened by quote behind this many
// backslashes ends; the end of the text if it does not.
func closing(s string, i int, quote byte, slashes int) int {
	run := 0
	for ; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			run++
			continue
		case s[i] == quote && run == slashes:
			return i - slashes
		}
		run = 0
	}
	return len(s)
}

// findFlags finds `--password value` and `-u user:password` in command lines.
func findFlags(s string, spans []span) []span {
	for i := 0; i < len(s); i++ {
		if s[i] != '-' || i > 0 && !isSpace(s[i-1]) && strings.IndexByte("\"'`(;|&", s[i-1]) < 0 {
			continue
		}
		end := i
		for end < len(s) && end-i < maxKey && (isWord(s[end]) || s[end] == '.') {
			end++
		}
		flag := s[i:end]
		if sp, ok := shortFlag(s, i, end); ok {
			spans = append(spans, sp)
		}
		gap := end
		for gap < len(s) && (s[gap] == ' ' || s[gap] == '\t') {
			gap++
		}
		if gap == end || !takesSecret(flag) {
			i = max(i, end-1)
			continue
		}
		start, stop := value(s, gap)
		if sp, ok := flagValue(s, start, stop, flag); ok {
			spans = append(spans, sp)
		}
		i = max(i, end-1)
	}
	return spans
}

func takesSecret(flag string) bool {
	return loginFlag(flag) || strings.HasPrefix(flag, "--") && Key(flag) || strings.HasPrefix(flag, "-") && len(flag) > 4 && Key(flag)
}

// loginFlag names the flags of curl, wget and others whose value is
// user:password.
func loginFlag(flag string) bool {
	return flag == "-u" || flag == "-U" || flag == "--user" || flag == "--proxy-user"
}

func flagValue(s string, start, end int, flag string) (span, bool) {
	v := s[start:end]
	if v == "" || isMarker(v) {
		return span{}, false
	}
	if !loginFlag(flag) {
		return span{start, end, labelOf(strings.ToLower(strings.TrimLeft(clip(flag), "-")))}, true
	}
	// 1000:1000 is a user and a group.
	if !strings.Contains(v, ":") || strings.Trim(v, "0123456789:") == "" {
		return span{}, false
	}
	return span{start, end, "login"}, true
}
