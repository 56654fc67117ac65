package inject

import (
	"fmt"
	"strings"

	"coworker/netproxy/hostmatch"
)

// maxPath bounds the path of a request that is judged, in octets. Longer ones are cut by some servers.
const maxPath = 4 << 10

// opaqueSlash stands for an encoded slash that is part of a segment. It is no octet of any path of a rule.
const opaqueSlash = 0x01

// readings are the two ways in which servers read a path that judgePath let through: an encoded slash is an octet of a
// segment for some and a separator for others. They are equal for a path without one.
type readings struct{ opaque, split string }

// judgePath decodes the path of a target (RFC 3986 section 3.3) and refuses what two servers could read as two paths:
//
//   - dot segments, empty segments and segments that end with a dot or a space, which some servers take off;
//   - encoded dots, backslashes, percent signs, question and number signs, and control octets, which count as what they
//     encode after one more or one less round of decoding;
//   - parameters ("/a;x/b", which servlet containers take off), backslashes (a slash on Windows);
//   - octets outside ASCII, raw or encoded: overlong forms, NFC and NFKC make other paths of them.
//
// An encoded slash passes, because npm writes @scope%2Fname; the caller decides on both readings. The query is cut off.
func judgePath(target string) (readings, error) {
	path, _, _ := strings.Cut(target, "?")
	switch {
	case len(path) > maxPath:
		return readings{}, fmt.Errorf("the path has %d octets, more than %d", len(path), maxPath)
	case !strings.HasPrefix(path, "/"):
		return readings{}, fmt.Errorf("the path %s is not absolute", hostmatch.Quote(path))
	}
	var opaque, split strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if !plain(c) && c != '%' && c != '/' {
			return readings{}, ambiguous(path, c)
		}
		if c != '%' {
			opaque.WriteByte(c)
			split.WriteByte(c)
			continue
		}
		c, ok := unescape(path[i:])
		switch {
		case !ok:
			return readings{}, fmt.Errorf("the path %s has a percent sign without two hexadecimal digits", hostmatch.Quote(path))
		case c == '/':
			opaque.WriteByte(opaqueSlash)
		case c == '.' || !plain(c) && !escapedOnly(c):
			return readings{}, ambiguous(path, c)
		default:
			opaque.WriteByte(c)
		}
		split.WriteByte(c)
		i += 2
	}
	out := readings{opaque.String(), split.String()}
	if err := judgeSegments(out.split); err != nil {
		return readings{}, fmt.Errorf("the path %s %w", hostmatch.Quote(path), err)
	}
	return out, nil
}

func ambiguous(path string, c byte) error {
	return fmt.Errorf("0x%02x in the path %s means different paths to different servers", c, hostmatch.Quote(path))
}

// judgeSegments looks at a path whose separators are all slashes.
func judgeSegments(path string) error {
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		switch {
		case s == "" && i < len(segments)-1:
			return fmt.Errorf("has an empty segment")
		case s == "." || s == "..":
			return fmt.Errorf("has a dot segment")
		case strings.HasSuffix(s, ".") || strings.HasSuffix(s, " ") || strings.HasPrefix(s, " "):
			return fmt.Errorf("has the segment %s, whose dot or space some servers take off", hostmatch.Quote(s))
		}
	}
	return nil
}

// plain is pchar of RFC 3986 without the semicolon and the percent sign.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0
}

// escapedOnly are printable octets that a path holds only encoded, and that mean nothing to any server.
func escapedOnly(c byte) bool { return c == ' ' || strings.IndexByte("\"<>[]^`{|}", c) >= 0 }

func unescape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	high, low := hexDigit(s[1]), hexDigit(s[2])
	return high<<4 | low, high < 16 && low < 16
}

func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// parsePrefix reads the path of a rule: "" and "/" cover everything and become "", every other loses a final slash. It
// holds no escapes, so that there is one way to write it.
func parsePrefix(path string) (string, error) {
	if path == "" || path == "/" {
		return "", nil
	}
	if strings.IndexByte(path, '%') >= 0 || strings.IndexByte(path, '?') >= 0 {
		return "", fmt.Errorf("path %s: a path is written without escapes and without a query", hostmatch.Quote(path))
	}
	if _, err := judgePath(path); err != nil {
		return "", err
	}
	return strings.TrimSuffix(path, "/"), nil
}

// covers says that path is prefix or lies below it.
func covers(prefix, path string) bool {
	rest, found := strings.CutPrefix(path, prefix)
	return found && (rest == "" || rest[0] == '/')
}
