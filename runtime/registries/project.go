package registries

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"coworker/platform/workfs"
)

// maxProject bounds a file of the workspace; deep nesting in a small file cannot use much memory.
const maxProject = 64 << 10

// projectFiles are the settings that managers read from a project, with what names a registry there.
var projectFiles = []struct {
	path    string
	manager string
	urls    func([]byte) []string
}{
	{".npmrc", "npm", npmrcURLs},
	{".yarnrc.yml", "yarn", func(b []byte) []string { return values(parseYarnYML(b)) }},
	{"pip.conf", "pip", pipURLs},
	{"uv.toml", "uv", func(b []byte) []string { return uvURLs(b, "") }},
	{"pyproject.toml", "uv", func(b []byte) []string { return uvURLs(b, "tool") }},
	{".cargo/config.toml", "cargo", cargoURLs},
	{"pom.xml", "maven", pomURLs},
	{"Gemfile", "gem", gemfileURLs},
}

// ProjectNotes tells which registries the files of a workspace name beyond the list. They grant nothing: whoever wrote the
// repository wrote them. Only names leave this function, checked by the grammar of rules.
func ProjectNotes(root *workfs.Root, list List) []Note {
	known := list.Rules()
	var out []Note
	for _, file := range projectFiles {
		content, _, err := root.ReadFile(file.path, maxProject)
		if err != nil {
			continue // absent, a link, or too big to be settings: there is nothing to tell
		}
		for _, address := range file.urls(content) {
			at, err := locate(address)
			if err != nil || at.rule == "" || slices.Contains(known, at.rule) {
				continue
			}
			known = append(known, at.rule)
			out = append(out, Note{file.manager, fmt.Sprintf("the project's %s names another registry, which is not allowed by that; allow it with --allow %s", file.path, at.rule)})
			if len(out) >= maxNotes {
				return out
			}
		}
	}
	return out
}

func values(settings []setting) []string {
	var out []string
	for _, s := range settings {
		out = append(out, s.value)
	}
	return out
}

func npmrcURLs(content []byte) []string {
	return values(slices.DeleteFunc(parseNpmrc(content), func(s setting) bool {
		_, ok := registryScope(s.key)
		return !ok
	}))
}

func pipURLs(content []byte) []string {
	var out []string
	for _, s := range parsePip(content) {
		if strings.HasSuffix(s.key, ".index-url") || strings.HasSuffix(s.key, ".extra-index-url") {
			out = append(out, strings.Fields(s.value)...)
		}
	}
	return out
}

func uvURLs(content []byte, table string) []string {
	var i uvIndexes
	if table == "" {
		file, err := parseUV(content)
		if err != nil {
			return nil
		}
		i = file.uvIndexes
	} else {
		var project struct {
			Tool struct {
				UV uvIndexes `toml:"uv"`
			} `toml:"tool"`
		}
		if toml.Unmarshal(content, &project) != nil {
			return nil
		}
		i = project.Tool.UV
	}
	out := append([]string{i.IndexURL}, i.ExtraIndexURL...)
	for _, index := range i.Index {
		out = append(out, index.URL)
	}
	return out
}

func cargoURLs(content []byte) []string {
	c, err := parseCargo(content)
	if err != nil {
		return nil
	}
	var out []string
	for _, r := range c.Registries {
		out = append(out, r.Index)
	}
	for _, s := range c.Source {
		out = append(out, s.Registry)
	}
	slices.Sort(out)
	return out
}

func pomURLs(content []byte) []string {
	var pom struct {
		Repos   []mavenRepository `xml:"repositories>repository"`
		Plugins []mavenRepository `xml:"pluginRepositories>pluginRepository"`
	}
	if xml.Unmarshal(content, &pom) != nil {
		return nil
	}
	var out []string
	for _, r := range append(pom.Repos, pom.Plugins...) {
		out = append(out, strings.TrimSpace(r.URL))
	}
	return out
}

var gemfileSource = regexp.MustCompile(`(?m)^\s{0,8}source[ (]{1,4}["']([^"'\s]{1,1000})["']`)

func gemfileURLs(content []byte) []string {
	var out []string
	for _, m := range gemfileSource.FindAllSubmatch(content, maxNotes) {
		out = append(out, string(m[1]))
	}
	return out
}
