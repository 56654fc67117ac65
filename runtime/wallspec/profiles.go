package wallspec

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"coworker/platform/config"
)

// Profile is a set of saved flags. Paths that do not exist and secrets that are not set are skipped: one profile
// serves many machines.
type Profile struct {
	About     string        `toml:"about"`
	Home      []string      `toml:"home"`       // further folders of the private home that persist
	Read      []config.Path `toml:"read"`       // as --read
	Write     []config.Path `toml:"write"`      // as --write
	Hide      []config.Path `toml:"hide"`       // as --hide
	Env       []string      `toml:"env"`        // as --env; $HOME is the private home
	EnvSecret []string      `toml:"env_secret"` // as --env-secret
	Allow     []config.Rule `toml:"allow"`      // as --allow: where the tool's own service is
}

//go:embed profiles/*.toml
var shipped embed.FS

// ProfileNames lists the shipped profiles.
func ProfileNames() []string {
	entries, err := fs.ReadDir(shipped, "profiles")
	if err != nil {
		return nil // cannot be: the folder is part of the binary
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".toml"))
	}
	return out
}

// FindProfile finds a profile by name: the person's own (profiles/NAME.toml in the config folder, read by read,
// which is config.Read) before the shipped ones.
func FindProfile(name, configDir string, read func(file string) ([]byte, error)) (*Profile, error) {
	if !word(name) || strings.HasPrefix(name, ".") {
		return nil, refuse("--profile", "", "%q is not the name of a profile", name)
	}
	file := path.Join(configDir, "profiles", name+".toml")
	data, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		file = "profile " + name
		if data, err = shipped.ReadFile("profiles/" + name + ".toml"); err != nil {
			return nil, refuse("--profile", "shipped are "+strings.Join(ProfileNames(), ", "),
				"there is no profile %q, and no %s", name, path.Join(configDir, "profiles", name+".toml"))
		}
	}
	if err != nil {
		return nil, &Error{Subject: "--profile", Reason: err.Error(), Err: err}
	}
	return ParseProfile(file, data)
}

// ParseProfile reads a profile. file is used in messages only.
func ParseProfile(file string, data []byte) (*Profile, error) {
	var p Profile
	if err := config.Decode(file, data, &p); err != nil {
		return nil, &Error{Subject: "--profile", Reason: err.Error(), Err: err}
	}
	for _, dir := range p.Home {
		if c := path.Clean(dir); c != dir || path.IsAbs(c) || c == "." || c == ".." || strings.HasPrefix(c, "../") || !plainField(c) {
			return nil, refuse("--profile", "", "%s: home: %q is not a folder in the home", file, dir)
		}
		if slices.Contains([]string{".ssh", ".gnupg", ".config", ".aws"}, strings.Split(dir, "/")[0]) {
			return nil, refuse("--profile", "", "%s: home: %q holds settings or credentials, which are made anew for each session", file, dir)
		}
	}
	for _, list := range [][]config.Path{p.Read, p.Write, p.Hide} {
		for _, x := range list {
			if !strings.HasPrefix(string(x), "/") && !strings.HasPrefix(string(x), "~/") {
				return nil, refuse("--profile", fmt.Sprintf("begin it with / or ~/ in %s", file), "%s: %q is relative", file, string(x))
			}
		}
	}
	return &p, nil
}
