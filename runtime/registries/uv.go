package registries

import (
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// uvIndexes are the settings of uv about where packages come from (docs.astral.sh/uv, "Settings").
type uvIndexes struct {
	IndexURL      string    `toml:"index-url"`
	ExtraIndexURL []string  `toml:"extra-index-url"`
	FindLinks     []string  `toml:"find-links"`
	NoIndex       bool      `toml:"no-index"`
	Index         []uvIndex `toml:"index"`
}

type uvIndex struct {
	Name    string `toml:"name"`
	URL     string `toml:"url"`
	Default bool   `toml:"default"`
}

type uvFile struct {
	uvIndexes
	Pip uvIndexes `toml:"pip"`
}

// parseUV reads uv.toml.
func parseUV(content []byte) (uvFile, error) {
	var file uvFile
	err := toml.Unmarshal(content, &file)
	return file, err
}

// uvFiles are the person's file and the machine's, in this order; UV_CONFIG_FILE replaces both.
func (f *finder) uvFiles() []string {
	if truth(f.env["UV_NO_CONFIG"]) {
		return nil
	}
	if p := f.env["UV_CONFIG_FILE"]; p != "" {
		return []string{p}
	}
	return append(append([]string{f.xdg("uv/uv.toml")}, f.xdgSystem("uv/uv.toml")...), "/etc/uv/uv.toml")
}

// uvSearch collects what the layers say; the first that names a default index wins, further indexes add up.
type uvSearch struct {
	main, further []origin
	off           bool
}

func (s *uvSearch) take(i uvIndexes, source string) {
	s.off = s.off || i.NoIndex
	var main []origin
	if i.IndexURL != "" {
		main = append(main, origin{url: i.IndexURL, source: source})
	}
	for _, index := range i.Index {
		o := origin{url: index.URL, scope: index.Name, source: source}
		if index.Default {
			o.scope = ""
			main = append(main, o)
			continue
		}
		s.further = append(s.further, o)
	}
	if len(s.main) == 0 {
		s.main = main
	}
	for _, address := range append(i.ExtraIndexURL, i.FindLinks...) {
		s.further = append(s.further, origin{url: address, source: source})
	}
}

// environment reads uv's variables. UV_INDEX holds URLs or NAME=URL, separated by spaces.
func (s *uvSearch) environment(env map[string]string) {
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"} {
		if env[name] != "" && len(s.main) == 0 {
			s.main = []origin{{url: indexURL(env[name]), source: name}}
		}
	}
	for _, name := range []string{"UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"} {
		for _, address := range strings.FieldsFunc(env[name], func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' || r == ',' && name == "UV_FIND_LINKS" }) {
			s.further = append(s.further, origin{url: indexURL(address), source: name})
		}
	}
	s.off = s.off || truth(env["UV_NO_INDEX"])
}

// indexURL cuts NAME= off. A URL before the sign is no name.
func indexURL(s string) string {
	if name, rest, ok := strings.Cut(s, "="); ok && !strings.ContainsAny(name, ":/") {
		return rest
	}
	return s
}

func (f *finder) uv() {
	var s uvSearch
	s.environment(f.env)
	for _, p := range f.uvFiles() {
		content, ok := f.read(p)
		if !ok {
			continue
		}
		file, err := parseUV(content)
		if err != nil {
			f.note(f.show(p) + " is not valid TOML")
			continue
		}
		s.take(file.uvIndexes, f.show(p))
		s.take(file.Pip, f.show(p))
	}
	if s.off {
		return
	}
	standard := f.pythonIndex()
	for _, o := range append(s.main, s.further...) {
		f.add(withFiles(o, standard))
	}
	if _, _, installed := f.program("uv"); !installed || len(s.main) > 0 {
		return
	}
	if standard.url == "" {
		f.noDefault("uv uses pip's, and no Python is installed")
		return
	}
	f.add(standard)
}
