package registries

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// setting is one line of a settings file.
type setting struct{ key, value string }

// parseNpmrc reads the ini dialect of npm (the package "ini"): keys before the first section, ";" and "#" begin a comment
// unless escaped or quoted, the last of one key counts. ${NAME} is left as it is.
func parseNpmrc(content []byte) []setting {
	var out []setting
	for _, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' && strings.HasSuffix(line, "]") {
			break // below a section a key is another key
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		out = append(out, setting{unquoteIni(key), unquoteIni(value)})
	}
	return out
}

func unquoteIni(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte(`\;#`, s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		case c == ';' || c == '#':
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}

var envReference = regexp.MustCompile(`\$\{([^${}?]{1,128})(\?)?\}`)

// expandEnv does what npm does with ${NAME} and ${NAME?} in values (@npmcli/config, env-replace.js): an unknown name stays
// as it is, or becomes nothing with the question mark.
func expandEnv(value string, env map[string]string) string {
	return envReference.ReplaceAllStringFunc(value, func(ref string) string {
		m := envReference.FindStringSubmatch(ref)
		if v, ok := env[m[1]]; ok {
			return v
		}
		if m[2] != "" {
			return ""
		}
		return ref
	})
}

// npmLayers collects registries by scope ("" for the main one); what was set first wins.
type npmLayers struct {
	order []string
	by    map[string]origin
}

func (l *npmLayers) set(o origin) {
	if o.url == "" {
		return
	}
	if _, have := l.by[o.scope]; !have {
		if l.by == nil {
			l.by = map[string]origin{}
		}
		l.by[o.scope] = o
		l.order = append(l.order, o.scope)
	}
}

// registryScope tells registry keys: "registry" and "@scope:registry".
func registryScope(key string) (scope string, ok bool) {
	if key == "registry" {
		return "", true
	}
	scope, found := strings.CutSuffix(key, ":registry")
	return scope, found && strings.HasPrefix(scope, "@")
}

// npmEnv reads npm_config_KEY in any case, as @npmcli/config does: underscores after the first character are dashes.
func (f *finder) npmEnv() (settings []setting, byKey map[string]string) {
	byKey = map[string]string{}
	for _, entry := range f.host.Environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || value == "" || len(name) <= len("npm_config_") || !strings.EqualFold(name[:len("npm_config_")], "npm_config_") {
			continue
		}
		key := strings.ToLower(name[len("npm_config_"):])
		key = key[:1] + strings.ReplaceAll(key[1:], "_", "-")
		byKey[key] = value
		settings = append(settings, setting{key, value})
	}
	return settings, byKey
}

// npmFile adds the registries of one npmrc and returns its other settings.
func (f *finder) npmFile(layers *npmLayers, p string) map[string]string {
	content, ok := f.read(p)
	if !ok {
		return nil
	}
	last := map[string]string{}
	for _, s := range parseNpmrc(content) {
		last[s.key] = expandEnv(s.value, f.env)
	}
	for _, s := range parseNpmrc(content) {
		if scope, ok := registryScope(s.key); ok {
			layers.set(origin{url: last[s.key], scope: scope, source: f.show(p)})
		}
	}
	return last
}

// npmSettings reads the layers of npm in their order: environment, the person's file, the machine's file, the installation's
// file (npm-config(7), npmrc(5)). The project's file is the stranger's.
func (f *finder) npmSettings() npmLayers {
	var layers npmLayers
	env, byKey := f.npmEnv()
	for i := len(env) - 1; i >= 0; i-- {
		if scope, ok := registryScope(env[i].key); ok {
			layers.set(origin{url: env[i].value, scope: scope, source: "npm_config_" + env[i].key})
		}
	}
	user := f.home(".npmrc")
	if p := byKey["userconfig"]; p != "" {
		user = f.expandHome(p)
	}
	own := f.npmFile(&layers, user)
	for _, p := range []string{byKey["globalconfig"], own["globalconfig"]} {
		if p != "" {
			f.npmFile(&layers, f.expandHome(p))
			return layers
		}
	}
	if prefix := f.npmPrefix(byKey, own); prefix != "" {
		f.npmFile(&layers, path.Join(prefix, "etc/npmrc"))
	}
	if dir := f.npmFolder(); dir != "" {
		f.npmFile(&layers, path.Join(dir, "npmrc"))
	}
	return layers
}

// npmPrefix is where global packages go: two folders above the node program if nothing says otherwise.
func (f *finder) npmPrefix(byKey, own map[string]string) string {
	for _, p := range []string{byKey["prefix"], f.env["PREFIX"], own["prefix"]} {
		if p != "" {
			return f.expandHome(p)
		}
	}
	if _, node, ok := f.program("node"); ok {
		return path.Dir(path.Dir(node))
	}
	return ""
}

// npmFolder is the installed package npm.
func (f *finder) npmFolder() string {
	_, real, ok := f.program("npm")
	if !ok {
		return ""
	}
	return path.Dir(path.Dir(real)) // npm/bin/npm-cli.js
}

func (f *finder) npm() {
	layers := f.npmSettings()
	for _, scope := range layers.order {
		f.add(layers.by[scope])
	}
	_, _, installed := f.program("npm")
	if _, main := layers.by[""]; main || !installed {
		return
	}
	if o := f.npmDefault(); o.url != "" {
		f.add(o)
		return
	}
	f.noDefault("npm's definitions.js")
}

// npmDefinitions are the places of npm's table of settings: npm 9 and later, npm 7 and 8, npm 6; the last two are of
// distributions that put npm's modules beside it.
var npmDefinitions = []string{
	"node_modules/@npmcli/config/lib/definitions/definitions.js",
	"lib/utils/config/definitions.js",
	"lib/config/defaults.js",
	"../@npmcli/config/lib/definitions/definitions.js",
	"../../@npmcli/config/lib/definitions/definitions.js",
}

var (
	npmDefinition  = regexp.MustCompile(`(?:define|new Definition)\(\s{0,8}['"]registry['"],\s{0,8}\{\s{0,16}default:\s{0,8}['"](https?://[^'"\s]{1,253})['"]`)
	npmOldDefaults = regexp.MustCompile(`(?m)^\s{2,8}registry: ?['"](https?://[^'"\s]{1,253})['"]`)
)

// parseNpmDefinitions finds the default registry in npm's own source.
func parseNpmDefinitions(content []byte) string {
	if m := npmDefinition.FindSubmatch(content); m != nil {
		return string(m[1])
	}
	if m := npmOldDefaults.FindSubmatch(content); m != nil {
		return string(m[1])
	}
	return ""
}

func (f *finder) npmDefault() origin {
	dir := f.npmFolder()
	if dir == "" {
		return origin{}
	}
	for _, rel := range npmDefinitions {
		if content, ok := f.read(path.Join(dir, rel)); ok {
			if found := parseNpmDefinitions(content); found != "" {
				return origin{url: found, source: fmt.Sprintf("npm in %s", f.show(dir)), normal: true}
			}
		}
	}
	return origin{}
}

// pnpm reads npm's files and, before them, its own (pnpm.io/npmrc). Its documented default is npm's.
func (f *finder) pnpm() {
	_, _, installed := f.program("pnpm")
	var layers npmLayers
	if own := f.npmFile(&layers, f.xdg("pnpm/rc")); own == nil && !installed {
		return
	}
	shared := f.npmSettings()
	for _, scope := range shared.order {
		layers.set(shared.by[scope])
	}
	if layers.by[""].url == "" && installed {
		layers.set(f.npmDefault())
	}
	for _, scope := range layers.order {
		f.add(layers.by[scope])
	}
	if layers.by[""].url == "" && installed {
		f.noDefault("pnpm uses npm's, and no npm is installed")
	}
}
