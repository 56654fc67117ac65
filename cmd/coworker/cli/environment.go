package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"coworker/platform/config"
	"coworker/platform/paths"
)

// environment is what commands work with.
type environment struct {
	in       *os.File
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
}

func newEnvironment(s Streams) *environment {
	return &environment{in: s.In, out: s.Out, err: s.Err, getenv: os.Getenv, now: time.Now}
}

// dirs finds coworker's folders. It makes nothing.
func (e *environment) dirs() (paths.Dirs, error) {
	home := e.getenv("HOME")
	if home == "" {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	d, err := paths.Resolve(e.getenv, home)
	if err != nil {
		return d, &usageError{text: err.Error(), hint: "set HOME, or COWORKER_HOME to an absolute path"}
	}
	return d, nil
}

func configFile(d paths.Dirs) string { return filepath.Join(d.Config, "config.toml") }

// settings reads the person's config.toml.
func (e *environment) settings(d paths.Dirs) (config.Config, error) {
	return config.Load(configFile(d))
}

// printJSON writes one document, indented: people read it too.
func (e *environment) printJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = e.out.Write(append(data, '\n'))
	return resultError(err)
}

// resultError says that the result could not be handed over; a script must not take silence for success.
func resultError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write the result: %w", err)
}

// progress shows what is being waited for, on a terminal only, and returns what takes it away again.
func (e *environment) progress(text string) (done func()) {
	if !isTerminal(e.err) {
		return func() {}
	}
	fmt.Fprintf(e.err, "%s…", text)
	return func() { fmt.Fprint(e.err, "\r\x1b[K") }
}
