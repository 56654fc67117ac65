package ward

import "time"

// Expel moves a process that should never have joined to where another one is, see cgroup.Group.Expel.
func (l *Local) Expel(pid, to int) error { return l.group.Expel(pid, to) }

// Empty kills everything in the group and waits until nothing is left, with all walls still up.
func (l *Local) Empty(limit time.Duration) error { return l.group.Empty(limit) }
