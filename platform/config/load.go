package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"coworker/platform/atomicfile"
)

// ErrUnsafe marks a settings file that somebody else, or a session, could change.
var ErrUnsafe = errors.New("settings file is not safe")

// Load reads the settings of a person. A missing file gives the zero Config: everything has a default.
func Load(file string) (Config, error) {
	data, err := Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{Source: file}, nil
	}
	if err != nil {
		return Config{}, err
	}
	return Parse(file, data)
}

// Read gives the content of a settings file of the person, at most MaxBytes. The file must be a regular one
// that only the person or root can write, under one name: a symbolic or hard link would let a session that may
// write the other place (a folder of dotfiles, say) change the settings of the next one.
func Read(file string) (data []byte, err error) {
	f, err := openNoFollow(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is not a regular file", file, ErrUnsafe)
	}
	if err := checkOwner(file, info); err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBytes {
		return nil, &Error{File: file, Reason: fmt.Sprintf("the file has more than %d bytes", MaxBytes)}
	}
	return data, nil
}

// Write makes a new settings file with every key explained. A file that exists is left alone, with an error
// that matches fs.ErrExist: it may hold comments and choices of the person.
func Write(file string, c Config) error {
	text := Render(c)
	if _, err := Parse(file, text); err != nil {
		return err
	}
	return atomicfile.Create(file, text)
}

func refuseLink(file string, err error) error {
	if info, statErr := os.Lstat(file); statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s: %w: it is a symbolic link", file, ErrUnsafe)
	}
	return err
}
