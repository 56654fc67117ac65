package credfile

import (
	"strings"
)

// ParsePip reads a pip.conf: user and password in index-url and extra-index-url of any section (pip documentation,
// "Configuration"; the format is Python's configparser: an indented line continues the one before).
//
// pip asks below the index and, for files, beside it, so the binding is the index without its last segment "simple".
func ParsePip(data []byte) (Result, error) {
	var out Result
	if err := checkSize(data); err != nil {
		return out, err
	}
	index := false // the current key is one of the two
	lines(data, func(n int, line string) {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' || text[0] == ';' {
			return
		}
		if line[0] != ' ' && line[0] != '\t' {
			var key string
			key, text = cutKey(text)
			index = key == "index-url" || key == "extra-index-url"
		}
		if !index {
			return
		}
		for _, one := range strings.Fields(text) {
			if u, ok := out.fromURL(n, one); ok {
				out.basic(n, u, prefix(strings.TrimSuffix(prefix(u.EscapedPath()), "/simple")))
			}
		}
	})
	return out, nil
}

// cutKey splits at the first "=" or ":", as configparser does; pip takes "_" for "-" and either case.
func cutKey(text string) (key, value string) {
	at := strings.IndexAny(text, "=:")
	if at < 0 || text[0] == '[' {
		return "", ""
	}
	key = strings.ToLower(strings.TrimSpace(text[:at]))
	return strings.ReplaceAll(key, "_", "-"), text[at+1:]
}
