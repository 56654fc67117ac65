package redact

import "strings"

// findPasswordWords finds passwords that follow a word instead of a separator:
// `IDENTIFIED BY 'x'` and `PASSWORD 'x'` of SQL, `login ada password x` of
// .netrc.
func findPasswordWords(s string, spans []span) []span {
	for i := 0; i < len(s); i++ {
		n := passwordWord(s, i)
		if n == 0 {
			continue
		}
		gap := i + n
		for gap < len(s) && isSpace(s[gap]) {
			gap++
		}
		if gap == i+n {
			continue
		}
		start, end := value(s, gap)
		if start == end || isMarker(s[start:end]) || !quoted(s, start) && !afterLogin(s, i) {
			continue
		}
		spans = append(spans, span{start, end, "password"})
		i = end - 1
	}
	return spans
}

func passwordWord(s string, i int) int {
	c := s[i] | 0x20
	if c != 'p' && c != 'i' || i > 0 && isWord(s[i-1]) {
		return 0
	}
	for _, w := range []string{"password", "passwd", "identified by"} {
		if len(s)-i >= len(w) && strings.EqualFold(s[i:i+len(w)], w) {
			return len(w)
		}
	}
	return 0
}

// afterLogin reports whether the word at i is part of a .netrc entry.
func afterLogin(s string, i int) bool {
	context := s[max(0, i-160):i]
	return strings.Contains(context, "login ") || strings.Contains(context, "machine ")
}

// shortPassword reports whether -p means a password in the command that
// context begins, and whether it is written together with it (`mysql -pX`).
func shortPassword(context string) (apart, joined bool) {
	if i := strings.LastIndexAny(context, "\n;|&"); i >= 0 {
		context = context[i+1:]
	}
	joined = strings.Contains(context, "mysql") || strings.Contains(context, "mariadb")
	for _, w := range []string{"sshpass", " login", "htpasswd"} {
		apart = apart || strings.Contains(context, w)
	}
	return apart, joined
}

// shortFlag returns the password of a -p flag at s[i:end], if it has one there.
func shortFlag(s string, i, end int) (span, bool) {
	if !strings.HasPrefix(s[i:], "-p") {
		return span{}, false
	}
	apart, joined := shortPassword(s[max(0, i-160):i])
	switch {
	case joined && i+2 < len(s) && !isSpace(s[i+2]):
		end = i + 2
	case apart && end == i+2:
		for end < len(s) && (s[end] == ' ' || s[end] == '\t') {
			end++
		}
	default:
		return span{}, false
	}
	start, stop := value(s, end)
	if start == stop || isMarker(s[start:stop]) {
		return span{}, false
	}
	return span{start, stop, "password"}, true
}

// shortArg is shortFlag for an argument vector.
func shortArg(args []string, i int) (string, bool) {
	if i == 0 || args[i] == "" {
		return "", false
	}
	if args[i-1] != "-p" && !strings.HasPrefix(args[i], "-p") {
		return "", false
	}
	var command strings.Builder
	for _, a := range args[:min(i, 4)] {
		command.WriteString(a[:min(len(a), 64)])
		command.WriteByte(' ')
	}
	apart, joined := shortPassword(command.String())
	rest, isFlag := strings.CutPrefix(args[i], "-p")
	switch {
	case joined && isFlag && rest != "" && !isMarker(rest):
		return "-p" + mark("password"), true
	case apart && args[i-1] == "-p" && !isMarker(args[i]):
		return mark("password"), true
	}
	return "", false
}
