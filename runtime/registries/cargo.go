package registries

import (
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// cargoConfig is the part of config.toml about registries (doc.rust-lang.org/cargo, "Registries" and "Source Replacement").
type cargoConfig struct {
	Registries map[string]struct {
		Index    string `toml:"index"`
		Protocol string `toml:"protocol"`
	} `toml:"registries"`
	Registry struct {
		Default string `toml:"default"`
	} `toml:"registry"`
	Source map[string]cargoSource `toml:"source"`
}

type cargoSource struct {
	ReplaceWith   string `toml:"replace-with"`
	Registry      string `toml:"registry"`
	LocalRegistry string `toml:"local-registry"`
	Directory     string `toml:"directory"`
	Git           string `toml:"git"`
}

func parseCargo(content []byte) (cargoConfig, error) {
	var c cargoConfig
	err := toml.Unmarshal(content, &c)
	return c, err
}

// mainRegistry is cargo's name for the registry that counts when nothing is said.
const mainRegistry = "crates-io"

// replaced follows source replacement from one source. local is true if it ends on this machine; address is empty if the
// source is not replaced.
func (c cargoConfig) replaced(name string) (address string, local bool) {
	seen := map[string]bool{}
	for !seen[name] && len(seen) < 16 {
		seen[name] = true
		s, known := c.Source[name]
		switch {
		case known && s.ReplaceWith != "":
			name = s.ReplaceWith
			continue
		case known && (s.Directory != "" || s.LocalRegistry != ""):
			return "", true
		case known && s.Registry != "":
			return s.Registry, false
		case known && s.Git != "":
			return s.Git, false
		}
		return c.Registries[name].Index, false
	}
	return "", false
}

var (
	cargoSparse = regexp.MustCompile(`sparse\+(https://index\.[a-z0-9.-]{1,200}/)`)
	cargoGit    = regexp.MustCompile(`(https://[a-z0-9.-]{1,200}/[a-z0-9/.-]{1,200}\.io-index)`)
)

// environment adds CARGO_REGISTRIES_NAME_INDEX. The variable's form of a name (upper case, underscores) is kept in the source.
func (c *cargoConfig) environment(environ []string) (names []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "CARGO_REGISTRIES_") && strings.HasSuffix(name, "_INDEX") && value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f *finder) cargoHome() string {
	if home := f.env["CARGO_HOME"]; home != "" {
		return home
	}
	return f.home(".cargo")
}

func (f *finder) cargo() {
	home := f.cargoHome()
	var config cargoConfig
	source := ""
	for _, base := range []string{"config", "config.toml"} { // cargo takes the old name if both exist
		content, ok := f.read(path.Join(home, base))
		if !ok {
			continue
		}
		source = f.show(path.Join(home, base))
		var err error
		if config, err = parseCargo(content); err != nil {
			f.note(source + " is not valid TOML")
		}
		break
	}
	for _, name := range config.environment(f.host.Environ) {
		f.addCargo(origin{url: f.env[name], source: name})
	}
	names := make([]string, 0, len(config.Registries))
	for name := range config.Registries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if r := config.Registries[name]; name != mainRegistry && r.Index != "" {
			f.addCargo(origin{url: r.Index, scope: name, source: source})
		}
	}
	address, local := config.replaced(mainRegistry)
	switch {
	case local:
	case address != "":
		f.addCargo(origin{url: address, source: source})
	default:
		f.cargoDefault(config.Registries[mainRegistry].Protocol)
	}
}

// cargoDefault reads the index out of the program. rustup's program is a shim; the real ones are in its toolchains.
func (f *finder) cargoDefault(protocol string) {
	_, real, ok := f.program("cargo")
	if !ok {
		return
	}
	if p := f.env["CARGO_REGISTRIES_CRATES_IO_PROTOCOL"]; p != "" {
		protocol = p
	}
	pattern := cargoSparse
	if protocol == "git" {
		pattern = cargoGit
	}
	rustup := f.home(".rustup")
	if root := f.env["RUSTUP_HOME"]; root != "" {
		rustup = root
	}
	programs := []string{real}
	for _, toolchain := range f.names(path.Join(rustup, "toolchains")) {
		programs = append(programs, path.Join(rustup, "toolchains", toolchain, "bin/cargo"))
	}
	for _, p := range programs {
		if found := f.search(p, pattern); found != "" {
			f.addCargo(origin{url: found, source: f.show(p), normal: true})
			return
		}
	}
	f.noDefault("the cargo program")
}

// addCargo adds an index with its download host, if cargo has kept the index's answer.
func (f *finder) addCargo(o origin) {
	at, err := locate(o.url)
	if err != nil || at.rule == "" {
		f.add(o)
		return
	}
	host, _, _ := strings.Cut(at.rule, ":")
	download, known := f.cargoDownload(host)
	o.extra = download
	f.add(o)
	if !known && strings.HasPrefix(strings.TrimPrefix(o.url, "sparse+"), "http") {
		f.note("the index at " + host + " names its download host when it is first asked, and cargo has not asked it on this machine yet; " +
			"if a download is refused, the refusal names the host")
	}
}

// cargoDownload reads "dl" of the config.json that cargo keeps for each index it has used (Cargo's "Index Format"):
// CARGO_HOME/registry/index/HOST-HASH/config.json.
func (f *finder) cargoDownload(host string) (hosts []string, known bool) {
	dir := path.Join(f.cargoHome(), "registry/index")
	for _, base := range f.names(dir) {
		cut := strings.LastIndexByte(base, '-')
		if cut < 0 || base[:cut] != host {
			continue
		}
		content, ok := f.read(path.Join(dir, base, "config.json"))
		if !ok {
			continue
		}
		if found := parseCargoIndex(content); found != "" {
			hosts, known = append(hosts, found), true
		}
	}
	return hosts, known
}

// parseCargoIndex is the authority of "dl" in an index's config.json. The URL may hold markers such as {crate} in its path.
func parseCargoIndex(content []byte) string {
	var config struct {
		Download string `json:"dl"`
	}
	if json.Unmarshal(content, &config) != nil {
		return ""
	}
	head, _, _ := strings.Cut(config.Download, "{")
	u, err := url.Parse(head)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return ""
	}
	return u.Host
}
