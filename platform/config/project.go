package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Project is a project's .coworker/config.toml. A repository is written by strangers, so the file has only the
// keys that can take something away from a session.
type Project struct {
	Level Level `toml:"level"`
	Exec  struct {
		Hide []Path `toml:"hide"` // relative to the project
	} `toml:"exec"`
	Net struct {
		Deny []Rule `toml:"deny"`
	} `toml:"net"`
	Limits Limits `toml:"limits"`

	Source string `toml:"-"`

	at placeOf
}

// ParseProject reads a project file. The caller reads the bytes, with platform/workfs or in a cell: a path in
// a repository is not opened here.
func ParseProject(file string, data []byte) (Project, error) {
	var p Project
	if err := Decode(file, data, &p); err != nil {
		return Project{}, explainProject(err, data)
	}
	p.Source, p.at = file, places(data)
	for _, h := range p.Exec.Hide {
		if clean := path.Clean(string(h)); h.rooted() || clean == ".." || strings.HasPrefix(clean, "../") || clean == "." {
			return Project{}, places(data).wrong(file, "exec.hide",
				fmt.Sprintf("%q is not inside the project; a project file names paths relative to it", string(h)))
		}
	}
	return p, nil
}

// explainProject tells a key that only a person may set from one that does not exist.
func explainProject(err error, data []byte) error {
	var whole Config
	if Decode("", data, &whole) != nil {
		return err
	}
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	return &Error{File: e.File, Line: e.Line, Column: e.Column, Key: e.Key, Reason: fmt.Sprintf(
		"%q is for the settings of a person: a project file can only tighten (level, exec.hide, net.deny, limits)", e.Key)}
}

// Tighten applies a project file to the settings of a person. root is the absolute path of the project. What
// would loosen them is an error, not ignored: the file does not do what its author thinks.
func Tighten(c Config, p Project, root string) (Config, error) {
	if p.Level != "" {
		have := max(rank(c.Level), 0)
		if c.Level == "" {
			have = rank("enforced") // the default
		}
		if rank(p.Level) < have {
			return Config{}, loosens(p, "level", string(p.Level), string(Levels()[have]))
		}
		c.Level = p.Level
	}
	c.Exec.Hide = slices.Clone(c.Exec.Hide)
	for _, h := range p.Exec.Hide {
		c.Exec.Hide = append(c.Exec.Hide, Path(path.Join(root, string(h))))
	}
	c.Net.Deny = append(slices.Clone(c.Net.Deny), p.Net.Deny...)
	err := errors.Join(
		lower(p, "processes", &c.Limits.Processes, &c.Ceiling.Processes, p.Limits.Processes),
		lower(p, "memory", &c.Limits.Memory, &c.Ceiling.Memory, p.Limits.Memory),
		lower(p, "cpus", &c.Limits.CPUs, &c.Ceiling.CPUs, p.Limits.CPUs),
		lower(p, "open_files", &c.Limits.OpenFiles, &c.Ceiling.OpenFiles, p.Limits.OpenFiles),
		lower(p, "file_size", &c.Limits.FileSize, &c.Ceiling.FileSize, p.Limits.FileSize),
		lower(p, "tmp", &c.Limits.Tmp, &c.Ceiling.Tmp, p.Limits.Tmp))
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

func rank(l Level) int { return slices.Index(Levels(), l) }

func lower[T Size | Count | Cores](p Project, key string, own, ceiling *T, want T) error {
	switch {
	case want == 0:
	case *own == 0:
		*ceiling = want
	case want > *own:
		return loosens(p, "limits."+key, fmt.Sprint(want), fmt.Sprint(*own))
	default:
		*own = want
	}
	return nil
}

func loosens(p Project, key, want, have string) error {
	return p.at.wrong(p.Source, key, fmt.Sprintf(
		"%s is weaker than %s in the settings of the person: a project file can only tighten", want, have))
}
