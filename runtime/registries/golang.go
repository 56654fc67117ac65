package registries

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// parseGoEnv reads the lines NAME=VALUE of go.env and of the file of `go env -w` (cmd/go/internal/cfg).
func parseGoEnv(content []byte) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(string(content), "\n") {
		line = strings.TrimRight(line, "\r")
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" || name[0] < 'A' || name[0] > 'Z' {
			continue
		}
		if _, have := out[name]; !have { // the first counts
			out[name] = value
		}
	}
	return out
}

// parseGoProxy splits GOPROXY (go help goproxy). "direct" stands for the host of each module and "off" for nothing: neither
// is a registry.
func parseGoProxy(value string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' }) {
		switch part = strings.TrimSpace(part); part {
		case "", "direct", "noproxy":
		case "off":
			return out
		default:
			if !strings.Contains(part, "://") { // cmd/go takes https for a URL without a scheme
				part = "https://" + part
			}
			out = append(out, part)
		}
	}
	return out
}

// parseGoSumDB finds where the checksum database is asked: NAME, NAME+KEY, or either with a URL after a space.
func parseGoSumDB(value string) string {
	fields := strings.Fields(value)
	if len(fields) == 0 || fields[0] == "off" {
		return ""
	}
	if len(fields) > 1 {
		if !strings.Contains(fields[1], "://") {
			return "https://" + fields[1]
		}
		return fields[1]
	}
	name, _, _ := strings.Cut(fields[0], "+")
	return "https://" + name
}

// goLayer is one place that go looks at.
type goLayer struct {
	source string
	values map[string]string
	normal bool
}

// goLayers are the environment, the file of `go env -w` and the one in GOROOT (cmd/go, "Environment variables").
func (f *finder) goLayers() []goLayer {
	layers := []goLayer{{values: f.env}}
	own := f.xdg("go/env")
	mac := f.home("Library/Application Support/go/env")
	for _, p := range []string{f.env["GOENV"], own, mac} {
		if p == "off" {
			break
		}
		if p == "" {
			continue
		}
		if content, ok := f.read(p); ok {
			layers = append(layers, goLayer{source: f.show(p), values: parseGoEnv(content)})
			break
		}
		if p == f.env["GOENV"] {
			break
		}
	}
	for _, root := range f.goRoots() {
		p := path.Join(root, "go.env")
		if content, ok := f.read(p); ok {
			return append(layers, goLayer{source: f.show(p), values: parseGoEnv(content), normal: true})
		}
	}
	return layers
}

// goRoots are where GOROOT may be. A shim leads to the versions beside it.
func (f *finder) goRoots() []string {
	var out []string
	if root := f.env["GOROOT"]; path.IsAbs(root) {
		out = append(out, root)
	}
	named, real, ok := f.program("go")
	if !ok {
		return out
	}
	out = append(out, path.Dir(path.Dir(real)))
	if root := path.Dir(path.Dir(named)); path.Base(path.Dir(named)) == "shims" {
		for _, dir := range []string{path.Join(root, "versions"), path.Join(root, "installs/golang"), path.Join(root, "installs/go")} {
			for _, version := range f.names(dir) {
				out = append(out, path.Join(dir, version), path.Join(dir, version, "go"))
			}
		}
	}
	return out
}

// lookup gives the first value that is set, as go does: an empty variable counts as unset.
func lookup(layers []goLayer, name string) (value, source string, normal bool) {
	for _, l := range layers {
		if v := l.values[name]; v != "" {
			if l.source == "" {
				return v, name, false
			}
			return v, l.source, l.normal
		}
	}
	return "", "", false
}

func (f *finder) golang() {
	layers := f.goLayers()
	_, _, installed := f.program("go")
	proxy, source, normal := lookup(layers, "GOPROXY")
	if proxy == "" {
		if installed {
			f.noDefault("go.env in GOROOT, which Go has since 1.21")
		}
		return
	}
	if normal && !installed {
		return
	}
	f.list.golang = goSettings(layers)
	for _, address := range parseGoProxy(proxy) {
		f.add(origin{url: address, source: source, normal: normal})
	}
	sums, source, normal := lookup(layers, "GOSUMDB")
	if unchecked(layers) || strings.TrimSpace(proxy) == "off" {
		return
	}
	if address := parseGoSumDB(sums); address != "" {
		f.add(origin{url: address, scope: "checksums", source: source, normal: normal})
	}
}

// goSettings are the values that somebody chose, made anew from their parts. A part that is not understood is left out.
func goSettings(layers []goLayer) []setting {
	var out []setting
	for _, v := range []struct {
		name  string
		clean func(string) string
	}{{"GOPROXY", cleanGoProxy}, {"GOSUMDB", cleanGoSumDB}, {"GOPRIVATE", cleanGoPatterns}, {"GONOPROXY", cleanGoPatterns}, {"GONOSUMDB", cleanGoPatterns}} {
		value, _, normal := lookup(layers, v.name)
		if clean := v.clean(value); clean != "" && !normal {
			out = append(out, setting{v.name, clean})
		}
	}
	return out
}

func cleanGoProxy(value string) string {
	out, separator := "", ""
	for value != "" {
		end := strings.IndexAny(value, ",|")
		part, next, rest := value, "", ""
		if end >= 0 {
			part, next, rest = value[:end], value[end:end+1], value[end+1:]
		}
		part = strings.TrimSpace(part)
		if part != "direct" && part != "off" {
			part = cleanGoURL(part)
		}
		if part != "" {
			out += separator + part
			separator = next
		}
		value = rest
	}
	return out
}

// cleanGoURL gives the URL that an entry is made of, or nothing.
func cleanGoURL(address string) string {
	for _, full := range parseGoProxy(address) {
		if at, err := locate(full); err == nil && at.rule != "" {
			return at.url
		}
	}
	return ""
}

func cleanGoSumDB(value string) string {
	fields := strings.Fields(value)
	if len(fields) == 0 || !goKey.MatchString(fields[0]) {
		return ""
	}
	if len(fields) == 1 {
		return fields[0]
	}
	if address := cleanGoURL(fields[1]); address != "" {
		return fields[0] + " " + address
	}
	return ""
}

func cleanGoPatterns(value string) string {
	if goPatterns.MatchString(value) {
		return value
	}
	return ""
}

var (
	goKey      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+/=-]{0,500}$`)
	goPatterns = regexp.MustCompile(`^[A-Za-z0-9.,/*?~_-]{1,1000}$`)
)

// unchecked says that no module is checked: the pattern * in GONOSUMDB (or in GOPRIVATE, its default).
func unchecked(layers []goLayer) bool {
	value, _, _ := lookup(layers, "GONOSUMDB")
	if value == "" {
		value, _, _ = lookup(layers, "GOPRIVATE")
	}
	return slices.Contains(strings.Split(value, ","), "*")
}
