package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// MakeRoom moves this process from its own group of v2, which was delegated to it, into a child of it, and returns the group
// for NewBelow: controllers can be handed down only by a group without processes (cgroups(7), "no internal processes"). It
// returns "" where there is no v2, or no group of its own.
func MakeRoom(child string) (below string, err error) {
	places, err := placesOf(os.Getpid())
	if err != nil {
		return "", err
	}
	for _, p := range places {
		if !p.unified || p.self == "/" {
			continue
		}
		room := dir{path: filepath.Join(p.path, child)}
		if err := os.Mkdir(room.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make %s: %w", room.path, unwrapPath(err))
		}
		if err := room.write("cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return "", fmt.Errorf("move into %s: %w", room.path, err)
		}
		return p.self, nil
	}
	return "", nil
}
