package ward

import "time"

// Expel moves a process that should never have joined to where another one is, see cgroup.Group.Expel.
func (l *Local) Expel(pid, to int) error { return l.group.Expel(pid, to) }

// Made says why there is no group, or nil: a Local without one bounds nothing.
func (l *Local) Made() error { return l.group.Made() }

// Empty kills everything in the group and waits until nothing is left, with all walls still up.
func (l *Local) Empty(limit time.Duration) error { return l.group.Empty(limit) }
