package gitconfig

import "strings"

// Format writes entries in order so that Parse, and git, read the same entries back. Values are always quoted.
func Format(entries []Entry) []byte {
	var b strings.Builder
	last := ""
	for _, e := range entries {
		if header := headerOf(e); header != last {
			b.WriteString(header)
			last = header
		}
		_, _, key := e.Split()
		b.WriteString("\t" + key)
		if e.HasValue {
			b.WriteString(" = " + quote(e.Value))
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// headerOf writes the section. A name without a section can only stand before every header; such a key is never inert, and
// Format puts it under no header only while nothing else was written.
func headerOf(e Entry) string {
	section, sub, _ := e.Split()
	if !e.hasSub() {
		if section == "" {
			return ""
		}
		return "[" + section + "]\n"
	}
	sub = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(sub)
	return "[" + section + " \"" + sub + "\"]\n"
}

// quote escapes what git's parser would drop, join or cut.
func quote(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(v) + `"`
}
