package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Remove lists what has to go until no trace is left of Setup; nothing if there is none. Files that Setup did not write stay.
func (m Machine) Remove() ([]Step, error) {
	p := &plan{Machine: m}
	units := false
	for _, path := range []string{unitSocket, unitHelper} {
		ours, err := p.ours(path)
		if err != nil {
			return nil, err
		}
		units = units || ours
	}
	if units && m.Systemd {
		p.run("systemctl", "disable", "--now", "coworker-wallsd.socket")
		p.run("systemctl", "stop", "coworker-wallsd.service")
	}
	for _, path := range []string{unitSocket, unitHelper} {
		if err := p.remove(path); err != nil {
			return nil, err
		}
	}
	if units && m.Systemd {
		p.run("systemctl", "daemon-reload")
	}
	ours, err := p.ours(profile)
	if err != nil {
		return nil, err
	}
	if ours {
		p.run("apparmor_parser", "-R", m.at(profile))
		if err := p.remove(profile); err != nil {
			return nil, err
		}
	}
	if _, err := os.Lstat(m.at(Program)); err == nil {
		p.add("remove "+Program, func(context.Context) error { return os.Remove(m.at(Program)) })
	}
	p.removeFolder(filepath.Dir(Program))
	if len(p.steps) > 0 {
		p.add("remove empty control groups named coworker", func(context.Context) error { return m.removeGroups() })
	}
	if _, err := os.Lstat(m.at(socket)); err == nil && !m.Systemd {
		p.add("remove the socket "+socket, func(context.Context) error { return os.Remove(m.at(socket)) })
	}
	p.removeFolder(filepath.Dir(socket))
	return p.steps, nil
}

// ours says whether a text file is there and was written by Setup.
func (p *plan) ours(path string) (bool, error) {
	have, err := readRegular(p.at(path))
	if errors.Is(err, ErrForeign) {
		return false, nil
	}
	return err == nil && strings.HasPrefix(string(have), mark), err
}

func (p *plan) remove(path string) error {
	ours, err := p.ours(path)
	if ours {
		p.add("remove "+path, func(context.Context) error { return os.Remove(p.at(path)) })
	}
	return err
}

// removeFolder removes a folder that Setup or the helper made, unless somebody else put something into it.
func (p *plan) removeFolder(dir string) {
	if _, err := os.Lstat(p.at(dir)); err != nil {
		return
	}
	p.add("remove the folder "+dir+" if it is empty", func(context.Context) error { return removeEmpty(p.at(dir)) })
}

func removeEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return err
}

// removeGroups removes the groups that held those of sessions. One that has some still is busy, and stays.
func (m Machine) removeGroups() error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup/coworker", "/sys/fs/cgroup/*/coworker"} {
		found, err := filepath.Glob(m.at(pattern))
		errs = append(errs, err)
		for _, dir := range found {
			if err := removeEmpty(dir); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
