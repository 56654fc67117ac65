package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"coworker/platform/spelling"
)

// MaxBytes bounds a settings file. A hand-written one has a few kilobytes.
const MaxBytes = 64 << 10

// maxReported bounds how many mistakes one error lists.
const maxReported = 10

// Error is one mistake in a settings file.
type Error struct {
	File    string
	Line    int // from 1; 0 if the mistake has no place
	Column  int
	Key     string // the full name of the key, if it is about one
	Reason  string
	Nearest string // the valid name that looks most like Key
}

// Error names the place first, as compilers do, so that editors can jump there.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	b.WriteString(" " + e.Reason)
	if e.Nearest != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", e.Nearest)
	}
	return b.String()
}

// Decode reads TOML into the struct that into points to. Keys that it has no field for are errors. It serves
// every settings file of ours; file is used in messages only.
func Decode(file string, data []byte, into any) error {
	if len(data) > MaxBytes {
		return &Error{File: file, Reason: fmt.Sprintf("the file has more than %d bytes", MaxBytes)}
	}
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into)
	var strict *toml.StrictMissingError
	var one *toml.DecodeError
	switch {
	case err == nil:
		return checkValues(file, places(data), reflect.ValueOf(into).Elem(), "")
	case errors.As(err, &strict):
		return unknownKeys(file, strict, validKeys(reflect.TypeOf(into).Elem(), ""))
	case errors.As(err, &one):
		line, column := one.Position()
		key := strings.Join(one.Key(), ".")
		reason := strings.TrimPrefix(one.Error(), "toml: ")
		if key != "" && !strings.HasPrefix(reason, key) {
			reason = key + ": " + reason
		}
		return &Error{File: file, Line: line, Column: column, Key: key, Reason: reason}
	}
	return &Error{File: file, Reason: strings.TrimPrefix(err.Error(), "toml: ")}
}

func unknownKeys(file string, strict *toml.StrictMissingError, valid []string) error {
	var all []error
	for i := range strict.Errors[:min(len(strict.Errors), maxReported)] {
		e := &strict.Errors[i]
		line, column := e.Position()
		key := strings.Join(e.Key(), ".")
		all = append(all, &Error{File: file, Line: line, Column: column, Key: key,
			Reason: fmt.Sprintf("unknown key %q", key), Nearest: nearest(key, valid)})
	}
	return errors.Join(all...)
}

// Parse reads the settings of a person. file is used in messages only.
func Parse(file string, data []byte) (Config, error) {
	var c Config
	if err := Decode(file, data, &c); err != nil {
		return Config{}, err
	}
	c.Source = file
	at := places(data)
	for _, list := range []struct {
		key   string
		paths []Path
	}{
		{"exec.write", c.Exec.Write}, {"exec.read", c.Exec.Read}, {"exec.hide", c.Exec.Hide},
		{"exec.toolchains", c.Exec.Toolchains}, {"scan.exclude", c.Scan.Exclude},
	} {
		for _, p := range list.paths {
			if !p.rooted() {
				return Config{}, at.wrong(file, list.key, fmt.Sprintf("%q is relative; begin it with / or ~/", string(p)))
			}
		}
	}
	for _, p := range c.Exec.Write {
		if p.Expand("/~") == "/" {
			return Config{}, at.wrong(file, "exec.write", `"/" would make every folder of the machine writable; name the folders`)
		}
	}
	return c, nil
}

// validKeys lists the full names of all keys that t has fields for, tables included.
func validKeys(t reflect.Type, prefix string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("toml")
		if name == "-" || name == "" {
			continue
		}
		out = append(out, prefix+name)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, validKeys(f.Type, prefix+name+".")...)
		}
	}
	return out
}

// nearest finds the valid name that a person most likely meant: the same name in another table, else the one
// with the fewest changed letters, if that is less than half of it.
func nearest(key string, valid []string) string {
	if len(key) > 64 {
		return ""
	}
	last := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	best, bestCost := "", len(key)/2+1
	for _, v := range valid {
		cost := spelling.Distance(strings.ToLower(key), v)
		if last(key) == last(v) {
			cost = min(cost, 1)
		}
		if cost < bestCost {
			best, bestCost = v, cost
		}
	}
	return best
}
