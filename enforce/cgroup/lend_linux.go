package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Lend tells a backend that has somebody else put processes into the group where it is: its path below the mount of each
// hierarchy, empty if there is no group, or not at the usual place. That other may make folders of the same name in hierarchies that the group does
// without, for device rules for instance; Remove then removes those too. What others left there goes now.
func (g *Group) Lend() (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	usual := "/" + parentName + "/" + g.name
	if len(g.dirs) == 0 || slices.ContainsFunc(g.dirs, func(d dir) bool { return d.path != filepath.Join(d.mount, usual) }) {
		return "", nil
	}
	g.lent = true
	return usual, sweepRest()
}

// hierarchies lists the mounted ones.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	return parse(string(mounts), string(own)), nil
}

// removeRest removes the folders of a name that are not among those of the group itself.
func removeRest(name string, own []dir) error {
	all, err := hierarchies()
	for _, h := range all {
		if !h.useful() {
			err = errors.Join(err, dir{path: filepath.Join(h.mount, parentName, name), hierarchy: h}.remove(own))
		}
	}
	return err
}

// sweepRest removes lent folders whose group is gone: both its supervisor and the other were killed. The group's own folders are
// made before and removed after the lent ones, so a lent one without them belongs to nobody.
func sweepRest() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range all {
		if h.useful() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(h.mount, parentName))
		if err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if e.IsDir() && !held(all, e.Name()) {
				errs = append(errs, rmdirIdle(filepath.Join(h.mount, parentName, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

func held(all []hierarchy, name string) bool {
	for _, h := range all {
		if _, err := os.Lstat(filepath.Join(h.mount, parentName, name)); h.useful() && err == nil {
			return true
		}
	}
	return false
}

// rmdirIdle leaves a folder with processes in it: the next sweep comes after they have ended.
func rmdirIdle(path string) error {
	err := unix.Rmdir(path)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", path, err)
}
