//go:build !linux

package cli

import "coworker/platform/paths"

// homes is empty: without a backend nothing makes private homes.
type homes struct{ list []home }

func (*homes) close() error { return nil }

func (e *environment) findHomes(bool) (*homes, paths.Dirs, error) {
	d, err := e.dirs()
	return &homes{}, d, err
}
