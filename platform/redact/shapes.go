package redact

import "strings"

// findKeyBlocks finds private keys in PEM (RFC 7468), OpenPGP armour and
// PuTTY files. A block without its end is taken to the end of the text: the
// text was cut, and what is left is still most of a key.
func findKeyBlocks(s string, spans []span) []span {
	for from := 0; ; {
		i := strings.Index(s[from:], "-----BEGIN ")
		if i < 0 {
			break
		}
		start := from + i
		from = start + len("-----BEGIN ")
		title := s[from:min(len(s), from+64)]
		if stop := strings.Index(title, "-----"); stop >= 0 {
			title = title[:stop]
		}
		if !strings.Contains(title, "PRIVATE KEY") {
			continue
		}
		end := len(s)
		if e := strings.Index(s[from:], "-----END "); e >= 0 {
			end = from + e + len("-----END ")
			if tail := strings.Index(s[end:min(len(s), end+64)], "-----"); tail >= 0 {
				end += tail + len("-----")
			}
		}
		spans = append(spans, span{start, end, "private-key"})
		from = end
	}
	if i := strings.Index(s, "Private-Lines:"); i >= 0 && strings.Contains(s, "PuTTY-User-Key-File") {
		spans = append(spans, span{i, len(s), "private-key"})
	}
	return spans
}

// findUserinfo finds the part before '@' in URLs (RFC 3986, section 3.2.1).
func findUserinfo(s string, spans []span) []span {
	for from := 0; ; {
		i := strings.Index(s[from:], "://")
		if i < 0 {
			return spans
		}
		start := from + i + len("://")
		from = start
		stop := start
		for stop < len(s) && !isSpace(s[stop]) && strings.IndexByte("/?#\"'`<>\\", s[stop]) < 0 {
			stop++
		}
		at := strings.LastIndexByte(s[start:stop], '@')
		from = stop
		if at <= 0 || isMarker(s[start:start+at]) {
			continue
		}
		info := s[start : start+at]
		if loginOnly(s[:start], info) {
			continue
		}
		spans = append(spans, span{start, start + at, "url-credentials"})
	}
}

// loginOnly reports whether the userinfo is just an account of a scheme that
// authenticates otherwise (ssh://git@host).
func loginOnly(before, info string) bool {
	if strings.ContainsAny(info, ":%") || len(info) > 32 {
		return false
	}
	for _, scheme := range []string{"ssh://", "sftp://", "scp://"} {
		if strings.HasSuffix(before, scheme) {
			return true
		}
	}
	return false
}

func isMarker(s string) bool { return s != "" && markerAt(s, 0) == len(s) }

// findSchemes finds the credentials of HTTP authentication outside a header
// (RFC 9110, section 11): "Bearer x", "Basic x".
func findSchemes(s string, spans []span) []span {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		if c != 'b' || i > 0 && isAlnum(s[i-1]) && !edge(s, i) {
			continue
		}
		n := 0
		for _, scheme := range []string{"bearer", "basic"} {
			if len(s)-i > len(scheme) && strings.EqualFold(s[i:i+len(scheme)], scheme) {
				n = len(scheme)
			}
		}
		if n == 0 {
			continue
		}
		start := skipGap(s, i+n)
		end := start
		for end < len(s) && (isBase64(s[end]) || strings.IndexByte(".~:", s[end]) >= 0) {
			end++
		}
		if start > i+n && looksRandom(s[start:end], n == len("bearer")) {
			spans = append(spans, span{start, end, "credentials"})
			i = end - 1
		}
	}
	return spans
}

// skipGap skips what can stand between a scheme and its credentials, escapes
// of a space included.
func skipGap(s string, i int) int {
	for i < len(s) {
		switch {
		case s[i] == ' ' || s[i] == '\t' || s[i] == '+':
			i++
		case strings.HasPrefix(s[i:], "%20"):
			i += 3
		default:
			return i
		}
	}
	return i
}

// looksRandom tells a credential from a word of prose ("basic understanding",
// "bearer of news").
func looksRandom(s string, bearer bool) bool {
	if len(s) >= 20 || bearer && len(s) >= 12 {
		return true
	}
	return len(s) >= 6 && strings.ContainsAny(s, "0123456789=+/_")
}
