package learn

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"coworker/platform/config"
	"coworker/platform/redact"
)

// writable says whether a text can be a TOML string.
func writable(s string) bool { return utf8.ValidString(s) }

// quote writes a basic string of TOML, in which everything is escaped that does not print: it stands in comments too, and a
// person reads it on a terminal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == utf8.RuneError || !unicode.IsPrint(r):
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// why says in a comment what an entry rests on.
func (s *seen) why(did string) string {
	if s.given && s.times == 0 {
		return "named when this was learned"
	}
	text := did + " once"
	if s.times > 1 {
		text = fmt.Sprintf("%s %d times", did, s.times)
	}
	if len(s.by) > 0 {
		names := make([]string, len(s.by))
		for i, n := range s.by {
			names[i] = quote(n)
		}
		text += ", by " + strings.Join(names, ", ")
	}
	if len(s.sources) > 0 {
		text += " (" + strings.Join(s.sources, ", ") + ")"
	}
	return text
}

func (d *draft) text(o Observations) []byte {
	var b bytes.Buffer
	program := o.Program
	if !d.mayShow(program) {
		program = "a command"
	}
	b.WriteString("# What one command needed, as far as it was seen. This file grants nothing: it counts when a session is started\n" +
		"# with --profile. Entries behind a # were refused; taking the # away allows them.\n")
	fmt.Fprintf(&b, "about = %s\n", quote("learned from one run of "+program))
	d.plainKeys(&b, o)
	d.read.write(&b, "read")
	d.write.write(&b, "write")
	d.allow.write(&b, "allow")
	d.remarks(&b, o)
	return b.Bytes()
}

// plainKeys writes what is taken over from the profile and the flags of the session as it was.
func (d *draft) plainKeys(b *bytes.Buffer, o Observations) {
	for _, key := range []struct {
		name   string
		values []string
	}{
		{"home", o.Given.Home}, {"hide", texts(o.Given.Hide)}, {"env", o.Given.Env}, {"env_secret", o.Given.EnvSecret},
	} {
		var keep []string
		for _, v := range slices.Compact(slices.Sorted(slices.Values(key.values))) {
			name, value, set := strings.Cut(v, "=")
			if !d.mayShow(v) || key.name == "env" && set && value != "" && redact.Key(name) {
				d.leftOut++
				continue
			}
			keep = append(keep, quote(v))
		}
		if len(keep) > 0 {
			fmt.Fprintf(b, "%s = [%s]  # given when this was learned\n", key.name, strings.Join(keep, ", "))
		}
	}
}

func texts(list []config.Path) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = string(x)
	}
	return out
}

// write writes one key with its entries: those that count, then those that were refused.
func (l *list) write(b *bytes.Buffer, key string) {
	if len(l.active)+len(l.refused) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s = [\n", key)
	for _, text := range sorted(l.active) {
		fmt.Fprintf(b, "  %s,  # %s\n", quote(text), l.active[text].why("let through"))
	}
	for _, text := range sorted(l.refused) {
		fmt.Fprintf(b, "  # %s,  # %s\n", quote(text), l.refused[text].why("refused"))
	}
	b.WriteString("]\n")
}

// remarks write what a profile cannot hold.
func (d *draft) remarks(b *bytes.Buffer, o Observations) {
	var lines []string
	if o.Wrote > 0 {
		lines = append(lines, fmt.Sprintf("It wrote the workspace (%d changes): use -w, or --staged, with this profile.", o.Wrote))
	}
	if d.needsWrite > 0 {
		lines = append(lines, fmt.Sprintf("A write to the workspace was refused (%d times): -w allows it.", d.needsWrite))
	}
	for _, text := range sorted(d.settings) {
		lines = append(lines, fmt.Sprintf("net.requests of the settings, not a profile, would allow %s: %s.", quote(text), d.settings[text].why("refused")))
	}
	for _, text := range sorted(d.nothing) {
		lines = append(lines, fmt.Sprintf("No flag allows this: %s, %s.", quote(text), d.nothing[text].why("refused")))
	}
	var unused []string
	for _, rule := range o.Given.Allow {
		if d.allow.active[string(rule)] == nil && d.mayShow(string(rule)) {
			unused = append(unused, fmt.Sprintf("Given as a rule, and not needed as it is: %s.", quote(string(rule))))
		}
	}
	slices.Sort(unused)
	lines = append(lines, slices.Compact(unused)...)
	for _, source := range o.Blind {
		if d.mayShow(source) {
			lines = append(lines, "No news of refused paths and addresses from "+quote(source)+".")
		}
	}
	if d.leftOut > 0 {
		lines = append(lines, fmt.Sprintf("%d things are left out because they may hold a secret or cannot be written down.", d.leftOut))
	}
	if d.more > 0 {
		lines = append(lines, fmt.Sprintf("%d more were seen than there was room for.", d.more))
	}
	for i, line := range lines {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString("# " + line + "\n")
	}
}
