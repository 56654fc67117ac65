package registries

import (
	"path"
	"regexp"
	"strings"
)

// parseYarnrc reads the lines KEY VALUE of Yarn 1 (~/.yarnrc), where both may be quoted.
func parseYarnrc(content []byte) []setting {
	var out []setting
	for _, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		out = append(out, setting{strings.Trim(key, `"`), strings.Trim(strings.TrimSpace(value), `"`)})
	}
	return out
}

var yarnServer = regexp.MustCompile(`^(\s{0,16})["']?npmRegistryServer["']?:\s{0,8}["']?([^"'\s#]{1,1000})["']?\s{0,8}(?:#.*)?$`)

// parseYarnYML finds npmRegistryServer of Yarn 2 and later (~/.yarnrc.yml), at the top and below npmScopes. Other YAML
// spellings of the same are not found; the refusal of a connection names the host then.
func parseYarnYML(content []byte) []setting {
	var out []setting
	for _, line := range strings.Split(string(content), "\n") {
		m := yarnServer.FindStringSubmatch(strings.TrimRight(line, "\r"))
		switch {
		case m == nil:
		case m[1] == "":
			out = append(out, setting{"registry", m[2]})
		default:
			out = append(out, setting{"scope", m[2]})
		}
	}
	return out
}

var yarnDefault = regexp.MustCompile(`YARN_REGISTRY = (?:exports\.YARN_REGISTRY = )?['"](https://[^'"\s]{1,253})['"]`)

func (f *finder) yarn() {
	_, real, installed := f.program("yarn")
	main := false
	add := func(o origin) {
		if o.url != "" {
			main = main || o.scope == ""
			f.add(o)
		}
	}
	for _, name := range []string{"YARN_REGISTRY", "YARN_NPM_REGISTRY_SERVER"} {
		add(origin{url: f.env[name], source: name})
	}
	for _, file := range []struct {
		name  string
		parse func([]byte) []setting
	}{{".yarnrc", parseYarnrc}, {".yarnrc.yml", parseYarnYML}} {
		content, ok := f.read(f.home(file.name))
		if !ok {
			continue
		}
		for _, s := range file.parse(content) {
			scope, isRegistry := registryScope(s.key)
			if isRegistry || s.key == "scope" {
				if s.key == "scope" {
					scope = "npmScopes"
				}
				add(origin{url: expandEnv(s.value, f.env), scope: scope, source: f.show(f.home(file.name))})
			}
		}
	}
	if main || !installed {
		return
	}
	for _, rel := range []string{"../lib/cli.js", "../yarn.js", "yarn.js"} {
		if found := f.search(path.Join(path.Dir(real), rel), yarnDefault); found != "" {
			f.add(origin{url: found, source: "yarn in " + f.show(path.Dir(path.Dir(real))), normal: true})
			return
		}
	}
	f.noDefault("yarn's cli.js")
}
