package registries

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// File is a settings file for the private home of a session.
type File struct {
	Path string // relative to the home
	Data []byte
}

// Files tell the managers inside which registries to use. The machine's settings are not visible there, and without them a
// manager would ask its default and be refused although the company's mirror is allowed.
//
// They are made anew from what was configured, never copied: registries only, without credentials, and without what else
// such files can hold (programs to run, options). A manager that uses its defaults gets none. Scopes of Yarn 2 and later
// are not written, because only their hosts are known here.
func (l List) Files() []File {
	var out []File
	for _, f := range []struct {
		path  string
		write func(List) string
	}{
		{".npmrc", func(l List) string { return npmFile(l.configured("npm")) }},
		{".config/pnpm/rc", func(l List) string { return npmFile(l.configured("pnpm")) }},
		{".yarnrc", func(l List) string { return yarnFile(l.configured("yarn"), "registry %q\n") }},
		{".yarnrc.yml", func(l List) string { return yarnFile(l.configured("yarn"), "npmRegistryServer: %q\n") }},
		{".config/pip/pip.conf", func(l List) string { return pipFile(l.configured("pip")) }},
		{".config/uv/uv.toml", func(l List) string { return uvInside(l.configured("uv")) }},
		{".config/go/env", func(l List) string { return goFile(l.golang) }},
		{".cargo/config.toml", func(l List) string { return cargoFile(l.configured("cargo")) }},
		{".m2/settings.xml", func(l List) string { return mavenInside(l.configured("maven")) }},
		{".gemrc", func(l List) string { return gemFile(l.configured("gem")) }},
	} {
		if text := f.write(l); text != "" {
			out = append(out, File{f.path, []byte(text)})
		}
	}
	return out
}

// configured are the entries of one manager that somebody chose.
func (l List) configured(manager string) []Entry {
	var out []Entry
	for _, e := range l.Entries {
		if e.Manager == manager && !e.Default && e.url != "" && plainName(e.Scope) && plainName(string(e.role)) {
			out = append(out, e)
		}
	}
	return out
}

// plainName accepts what needs no quoting in any of the formats.
func plainName(s string) bool {
	return len(s) < 256 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("@_-./:*!, ", r)
	})
}

func npmFile(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		key := "registry"
		if e.Scope != "" {
			key = e.Scope + ":registry"
		}
		fmt.Fprintf(&b, "%s=%s\n", key, e.url)
	}
	return b.String()
}

func yarnFile(entries []Entry, format string) string {
	for _, e := range entries {
		if e.Scope == "" {
			return fmt.Sprintf(format, e.url)
		}
	}
	return ""
}

// pipFile writes the one main index on the line of its key: pip takes a line break before it for a part of the URL.
func pipFile(entries []Entry) string {
	var main, extra, links []string
	for _, e := range entries {
		switch e.role {
		case mainRole:
			main = append(main, e.url)
		case extraRole:
			extra = append(extra, e.url)
		case linksRole:
			links = append(links, e.url)
		}
	}
	text := ""
	if len(main) > 0 {
		text += "index-url = " + main[0] + "\n"
	}
	if len(extra) > 0 {
		text += "extra-index-url =\n    " + strings.Join(extra, "\n    ") + "\n"
	}
	if len(links) > 0 {
		text += "find-links =\n    " + strings.Join(links, "\n    ") + "\n"
	}
	if text == "" {
		return ""
	}
	return "[global]\n" + text
}

func uvInside(entries []Entry) string {
	var head, tables strings.Builder
	for _, e := range entries {
		switch {
		case e.role == linksRole:
			fmt.Fprintf(&head, "    %q,\n", e.url)
		case e.Scope != "":
			fmt.Fprintf(&tables, "[[index]]\nname = %q\nurl = %q\n", e.Scope, e.url)
		default:
			fmt.Fprintf(&tables, "[[index]]\nurl = %q\ndefault = %v\n", e.url, e.role == mainRole)
		}
	}
	if head.Len() > 0 {
		return "find-links = [\n" + head.String() + "]\n" + tables.String()
	}
	return tables.String()
}

func goFile(settings []setting) string {
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s=%s\n", s.key, s.value)
	}
	return b.String()
}

// cargoFile names every registry, and puts the one that replaces crates.io in its place.
func cargoFile(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		if e.Scope != "" {
			fmt.Fprintf(&b, "[registries.%q]\nindex = %q\n\n", e.Scope, e.url)
			continue
		}
		fmt.Fprintf(&b, "[source.%s]\nreplace-with = \"configured\"\n\n[source.configured]\nregistry = %q\n\n", mainRegistry, e.url)
	}
	return b.String()
}

// mavenInside writes mirrors as they are and other repositories in a profile that is always active.
func mavenInside(entries []Entry) string {
	type repository struct {
		ID  string `xml:"id"`
		URL string `xml:"url"`
	}
	type mirror struct {
		repository
		Of string `xml:"mirrorOf"`
	}
	type profile struct {
		ID      string       `xml:"id"`
		Repos   []repository `xml:"repositories>repository"`
		Plugins []repository `xml:"pluginRepositories>pluginRepository"`
	}
	var settings struct {
		XMLName  xml.Name  `xml:"settings"`
		Mirrors  []mirror  `xml:"mirrors>mirror"`
		Profiles []profile `xml:"profiles>profile,omitempty"`
		Active   []string  `xml:"activeProfiles>activeProfile,omitempty"`
	}
	own := profile{ID: "configured"}
	for _, e := range entries {
		r := repository{e.Scope, e.url}
		if of, ok := strings.CutPrefix(string(e.role), string(mirrorRole)); ok {
			settings.Mirrors = append(settings.Mirrors, mirror{r, of})
			continue
		}
		own.Repos, own.Plugins = append(own.Repos, r), append(own.Plugins, r)
	}
	if len(entries) == 0 {
		return ""
	}
	if len(own.Repos) > 0 {
		settings.Profiles, settings.Active = []profile{own}, []string{own.ID}
	}
	text, err := xml.MarshalIndent(settings, "", "  ")
	if err != nil {
		return "" // strings and lists only: it has no reason to
	}
	return string(text) + "\n"
}

func gemFile(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "- %s\n", e.url)
	}
	if b.Len() == 0 {
		return ""
	}
	return "---\n:sources:\n" + b.String()
}
