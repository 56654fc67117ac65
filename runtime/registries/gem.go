package registries

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// parseGemrc finds the sources of a gemrc: the key ":sources:" or "sources:" with a list in lines or in brackets
// (guides.rubygems.org, "gem environment"). Other YAML spellings are not found.
func parseGemrc(content []byte) []string {
	var out []string
	inside := false
	for _, line := range strings.Split(string(content), "\n") {
		text := strings.TrimSpace(line)
		if inside && strings.HasPrefix(text, "- ") {
			out = append(out, gemSource(text[2:]))
			continue
		}
		if text == "" || text[0] == '#' {
			continue
		}
		inside = false
		for _, key := range []string{":sources:", "sources:", ":sources :"} {
			rest, ok := strings.CutPrefix(line, key)
			if !ok {
				continue
			}
			rest = strings.TrimSpace(rest)
			inside = rest == "" || rest[0] == '#'
			if list, ok := strings.CutPrefix(rest, "["); ok {
				list, _, _ = strings.Cut(list, "]")
				for _, s := range strings.Split(list, ",") {
					out = append(out, gemSource(s))
				}
			}
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

func gemSource(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), " #")
	return strings.Trim(strings.TrimSpace(s), `"'`)
}

var gemDefault = regexp.MustCompile(`def self\.default_sources\s{1,8}(?:\[|%w\[)\s{0,8}["']?(https://[^\]"'\s]{1,253})`)

// parseGemDefaults finds the default source in RubyGems' own source.
func parseGemDefaults(content []byte) string {
	if m := gemDefault.FindSubmatch(content); m != nil {
		return string(m[1])
	}
	return ""
}

// gemFiles are the machine's file, the person's, and those of GEMRC; a later one replaces the sources of an earlier one
// (Gem::ConfigFile).
func (f *finder) gemFiles() []string {
	files := []string{"/etc/gemrc", f.home(".gemrc")}
	if f.env["XDG_CONFIG_HOME"] != "" || len(f.names(f.xdg("gem"))) > 0 {
		files = append(files, f.xdg("gem/gemrc"))
	}
	files = append(files, strings.FieldsFunc(f.env["GEMRC"], func(r rune) bool { return r == ':' || r == ';' })...)
	return files
}

func (f *finder) gem() {
	var sources []origin
	for _, p := range f.gemFiles() {
		content, ok := f.read(p)
		if !ok {
			continue
		}
		if found := parseGemrc(content); len(found) > 0 {
			sources = nil
			for _, address := range found {
				sources = append(sources, origin{url: address, source: f.show(p)})
			}
		}
	}
	for _, o := range sources {
		f.add(o)
	}
	if len(sources) > 0 {
		return
	}
	_, real, ok := f.program("gem")
	if !ok {
		return
	}
	root := path.Dir(path.Dir(real))
	dirs := []string{path.Join(root, "lib/ruby/vendor_ruby"), path.Join(root, "share/ruby"), path.Join(root, "share/rubygems")}
	for _, version := range f.names(path.Join(root, "lib/ruby")) {
		dirs = append(dirs, path.Join(root, "lib/ruby", version))
	}
	for _, dir := range dirs {
		p := path.Join(dir, "rubygems/defaults.rb")
		if content, ok := f.read(p); ok {
			if found := parseGemDefaults(content); found != "" {
				f.add(origin{url: found, source: f.show(p), normal: true})
				return
			}
		}
	}
	f.noDefault("RubyGems' defaults.rb")
}
